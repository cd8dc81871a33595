# SPDX-License-Identifier: GPL-2.0-only
"""Reads kmemleak's reports: allocated memory to which no pointer is left."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

KNOB = Path("/sys/kernel/debug/kmemleak")
FOREIGN = ("hostfs_",)
"""Prefixes of functions that are known to leak: UML's hostfs."""

_AGE_S = 6.0
"""kmemleak does not report objects younger than 5 s."""
_SCANS = 2
"""Nor objects that it has scanned only once."""
_BEGINS = re.compile(r"^(?=unreferenced object\b)", re.MULTILINE)
_FRAME = re.compile(r"^\s+(?:\[<\w+>\] )?(\w+)\+0x", re.MULTILINE)


def is_foreign(report: str) -> bool:
    """Return whether a report is about a function that is known to leak.

    The rest of the stack does not matter: a packet that the driver leaks was allocated by its
    sender, and functions of an unloaded module have no names.
    """
    return any(name.startswith(FOREIGN) for name in _FRAME.findall(report))


def split(text: str) -> list[str]:
    """Return each report in the contents of kmemleak's file."""
    return [part for part in _BEGINS.split(text) if part.startswith("unreferenced object")]


def leaks() -> list[str]:
    """Scan for leaks and return all reports so far, which takes seconds; [] without kmemleak."""
    if not KNOB.exists():
        return []
    time.sleep(_AGE_S)
    with suppress(OSError):
        for _ in range(_SCANS):
            KNOB.write_text("scan")
    return [report for report in split(KNOB.read_text()) if not is_foreign(report)]
