# SPDX-License-Identifier: GPL-2.0-only
"""What kmemleak tells: memory that was allocated and that nothing points to any more."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

KNOB = Path("/sys/kernel/debug/kmemleak")
FOREIGN = ("hostfs_",)
"""Beginnings of functions that leak by themselves: User-Mode Linux's way to the host's files."""

_AGE_S = 6.0
"""kmemleak tells nothing of what is younger than 5 s."""
_SCANS = 2
"""Nor of what it has looked at only once."""
_BEGINS = re.compile(r"^(?=unreferenced object\b)", re.MULTILINE)
_FRAME = re.compile(r"^\s+(?:\[<\w+>\] )?(\w+)\+0x", re.MULTILINE)


def is_foreign(report: str) -> bool:
    """Whether a report is about a place that is known to leak.

    It does not matter who else is in the stack: packets that the driver leaks were allocated by
    their senders, and the functions of a module that is gone have no names.
    """
    return any(name.startswith(FOREIGN) for name in _FRAME.findall(report))


def split(text: str) -> list[str]:
    """Return each report in what kmemleak's file holds."""
    return [part for part in _BEGINS.split(text) if part.startswith("unreferenced object")]


def leaks() -> list[str]:
    """Look for leaks; return their reports. Takes seconds; none where kmemleak is not.

    Those of before are told again.
    """
    if not KNOB.exists():
        return []
    time.sleep(_AGE_S)
    with suppress(OSError):
        for _ in range(_SCANS):
            KNOB.write_text("scan")
    return [report for report in split(KNOB.read_text()) if not is_foreign(report)]
