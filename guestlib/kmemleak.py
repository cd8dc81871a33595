# SPDX-License-Identifier: GPL-2.0-only
"""Reads kmemleak's reports: allocated memory to which no pointer is left."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from lab.splats import is_foreign_leak

KNOB = Path("/sys/kernel/debug/kmemleak")
_AGE_S = 6.0
"""kmemleak does not report objects younger than 5 s."""
_SCANS = 2
"""Nor objects that it has scanned only once."""
_BEGINS = re.compile(r"^(?=unreferenced object\b)", re.MULTILINE)


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
    return [report for report in split(KNOB.read_text()) if not is_foreign_leak(report)]
