# SPDX-License-Identifier: GPL-2.0-only
"""The faults of patches/faults, which a kernel with them makes one at a time."""

from __future__ import annotations

from pathlib import Path

FAULTS = (
    *("none", "leak", "unowned", "early", "late", "queued", "key", "stale", "robbed", "flow"),
    *("held", "stock"),
)
"""In the order of ``enum dst_fault``."""
_FAULT = Path("/sys/module/dst_cache/parameters/fault")
_PANIC = Path("/proc/sys/kernel/panic_on_warn")


def make(fault: str) -> None:
    """Let the kernel make a fault from now on, instead of any other."""
    _FAULT.write_text(str(FAULTS.index(fault)), encoding="ascii")


def panic_on_report() -> None:
    """Let the kernel end at its first report: a broken kernel may never end."""
    _PANIC.write_text("1", encoding="ascii")
