# SPDX-License-Identifier: GPL-2.0-only
"""Makes everything fail once, in turn, that an operation of this thread needs from the kernel.

What fails is memory and copies to and from the program. Needs a kernel with fault injection, as
lab/kernel/configs/kasan.config has it.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from harness import Skip, check

KNOB = Path("/proc/thread-self/fail-nth")
DEBUGFS = Path("/sys/kernel/debug")
SETTINGS = {
    # Allocations that may sleep are spared otherwise, and those of single pages.
    "failslab/ignore-gfp-wait": "N",
    "fail_page_alloc/ignore-gfp-wait": "N",
    "fail_page_alloc/ignore-gfp-highmem": "N",
    "fail_page_alloc/min-order": "0",
    # No stack trace for each.
    "failslab/verbose": "0",
    "fail_page_alloc/verbose": "0",
    "fail_usercopy/verbose": "0",
}
MEMORY = {errno.ENOMEM, errno.ENOBUFS}
MOST = 5000
"""More things than an operation needs."""
NOTHING, BROKEN = 254, 255
"""How a child ends in which nothing failed, or that is wrong; else by the errno."""


def needed() -> None:
    """Skip the case where the kernel injects no faults."""
    if not KNOB.exists():
        raise Skip("this kernel injects no faults")


def _report(errors: Counter[int], *, memory: bool) -> None:
    """Tell what failed; fail the case when nothing did, or no allocation."""
    names = {errno.errorcode.get(number, "done"): count for number, count in errors.items()}
    print(f"# {errors.total()} faults: {names}", flush=True)
    check(errors.total() > 0, "no fault came")
    check(bool(MEMORY & set(errors)) or not memory, "no lack of memory was met")


def failures(
    operation: Callable[[], object], *, apart: bool = False, memory: bool = True
) -> Iterator[int]:
    """Run an operation again and again; each time the next thing that it needs fails.

    Args:
        operation: what is run.
        apart: in a process of its own: with other threads in this one the fault may meet the
            futex by which Python's threads take turns, and that ends the program.
        memory: whether allocations must be among what failed.

    Yields:
        The errno by which it failed; 0 when it did without. The last run, in which nothing
        failed, is not told; it must have gone well.
    """
    needed()
    for name, value in SETTINGS.items():
        (DEBUGFS / name).write_text(value)
    run = _apart if apart else _run
    errors = Counter[int]()
    for number in range(1, MOST):
        error = run(number, operation)
        if error is None:
            _report(errors, memory=memory)
            return
        errors[error] += 1
        yield error
    raise AssertionError(f"more than {MOST} things can fail")


def _apart(number: int, operation: Callable[[], object]) -> int | None:
    """Do the same in a child."""
    child = os.fork()
    if not child:
        status = BROKEN
        try:
            error = _run(number, operation)
            status = NOTHING if error is None else error
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(0 <= status < BROKEN, f"the child ended with {status}")
    return None if status == NOTHING else status


def _run(number: int, operation: Callable[[], object]) -> int | None:
    """Let the thing of this number fail; None: there was none such."""
    error, knob = 0, os.open(KNOB, os.O_RDWR)
    os.pwrite(knob, b"%d" % number, 0)
    try:
        operation()
    except OSError as raised:
        error = raised.errno or 0
    failed = _disarm(knob)
    os.close(knob)
    if failed:
        return error
    check(not error, f"error {error}, and nothing had failed")
    return None


def _disarm(knob: int) -> bool:
    """Let nothing fail any more. Return whether something did; our own copies do not count."""
    try:
        failed = int(os.pread(knob, 16, 0)) == 0
    except OSError:
        failed = False
    with suppress(OSError):
        os.pwrite(knob, b"0", 0)
    os.pwrite(knob, b"0", 0)
    return failed
