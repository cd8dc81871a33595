# SPDX-License-Identifier: GPL-2.0-only
"""Fault injection: fail each allocation and user copy of an operation in turn.

Only those of the calling thread fail. Needs a kernel with fault injection, such as that of
lab/kernel/configs/kasan.config.
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
    # By default allocations that may sleep and single pages do not fail.
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
"""More faults than an operation has places for."""
NOTHING, BROKEN = 254, 255
"""Exit statuses of a child: no fault was injected; the child crashed. Others are an errno."""


def needed() -> None:
    """Skip the case unless the kernel injects faults."""
    if not KNOB.exists():
        raise Skip("this kernel injects no faults")


def _report(errors: Counter[int], *, memory: bool) -> None:
    """Print the faults; fail the case if there was none, or none for lack of memory."""
    names = {errno.errorcode.get(number, "done"): count for number, count in errors.items()}
    print(f"# {errors.total()} faults: {names}", flush=True)
    check(errors.total() > 0, "no fault was injected")
    check(bool(MEMORY & set(errors)) or not memory, "no call failed for lack of memory")


def failures(
    operation: Callable[[], object], *, in_child: bool = False, memory: bool = True
) -> Iterator[int]:
    """Run an operation repeatedly; inject a fault at the next place each time.

    Args:
        operation: the function to run.
        in_child: run it in a child process. In this process the fault may hit the futex by which
            other Python threads take turns, which would end the program.
        memory: fail the case unless a call failed for lack of memory.

    Yields:
        The operation's errno; 0: it succeeded despite the fault. The last run, without a fault,
        must succeed and yields nothing.
    """
    needed()
    for name, value in SETTINGS.items():
        (DEBUGFS / name).write_text(value)
    run = _run_in_child if in_child else _run
    errors = Counter[int]()
    for number in range(1, MOST):
        error = run(number, operation)
        if error is None:
            _report(errors, memory=memory)
            return
        errors[error] += 1
        yield error
    raise AssertionError(f"more than {MOST} places for faults")


def _run_in_child(number: int, operation: Callable[[], object]) -> int | None:
    """Run the operation in a child; as _run()."""
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
    """Inject a fault at a place; return the operation's errno, or None: there is no such place."""
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
    check(not error, f"error {error} without a fault")
    return None


def _disarm(knob: int) -> bool:
    """Disable fault injection; return whether a fault was injected before this call."""
    try:
        failed = int(os.pread(knob, 16, 0)) == 0
    except OSError:
        failed = False
    with suppress(OSError):
        os.pwrite(knob, b"0", 0)
    os.pwrite(knob, b"0", 0)
    return failed
