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


def needed() -> None:
    """Skip the case where the kernel injects no faults."""
    if not KNOB.exists():
        raise Skip("this kernel injects no faults")


def seen(errors: Counter[int], *, memory: bool = True) -> None:
    """Tell what failed; fail the case when nothing did, or no allocation."""
    names = {errno.errorcode.get(number, "done"): count for number, count in errors.items()}
    print(f"# {errors.total()} faults: {names}", flush=True)
    check(errors.total() > 0, "no fault came")
    check(bool(MEMORY & set(errors)) or not memory, "no lack of memory was met")


def failures(operation: Callable[[], object]) -> Iterator[int]:
    """Run an operation again and again; each time the next thing that it needs fails.

    Yields:
        The errno by which it failed; 0 when it did without. The last run, in which nothing
        failed, is not told; it must have gone well.
    """
    needed()
    for name, value in SETTINGS.items():
        (DEBUGFS / name).write_text(value)
    knob = os.open(KNOB, os.O_RDWR)
    try:
        for number in range(1, MOST):
            error = _run(knob, number, operation)
            if error is None:
                return
            yield error
    finally:
        os.close(knob)
    raise AssertionError(f"more than {MOST} things can fail")


def _run(knob: int, number: int, operation: Callable[[], object]) -> int | None:
    """Let the thing of this number fail; None: there was none such."""
    error = 0
    os.pwrite(knob, b"%d" % number, 0)
    try:
        operation()
    except OSError as failed:
        error = failed.errno or 0
    if _disarm(knob):
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
