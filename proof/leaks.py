# SPDX-License-Identifier: GPL-2.0-only
"""Memory leaks, found by the growth of slab caches and by kmemleak."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from guestlib.environment import wait_until
from lab.splats import is_foreign_leak

SLABINFO, MEMINFO = Path("/proc/slabinfo"), Path("/proc/meminfo")
SLAB_KB, OBJECTS = 16 * 1024, 2000
"""Tolerated growth since the first round, kB and objects: per-CPU caches, partial slabs."""
CACHES = ("skbuff_head_cache", "skbuff_small_head")
SHRINK = Path("/sys/kernel/slab")
KMEMLEAK = Path("/sys/kernel/debug/kmemleak")
_AGE_S = 6.0
"""kmemleak does not report objects younger than 5 s."""
_SCANS = 2
"""Nor objects that it has scanned only once."""
_BEGINS = re.compile(r"^(?=unreferenced object\b)", re.MULTILINE)
_SETTLE_S = 0.3
_GOING_S = 10.0


def split_kmemleak(text: str) -> list[str]:
    """Return each report in the contents of kmemleak's file."""
    return [part for part in _BEGINS.split(text) if part.startswith("unreferenced object")]


def kmemleak_reports() -> list[str]:
    """Scan for leaks and return all reports so far, which takes seconds; [] without kmemleak."""
    if not KMEMLEAK.exists():
        return []
    time.sleep(_AGE_S)
    with suppress(OSError):
        for _ in range(_SCANS):
            KMEMLEAK.write_text("scan")
    return [
        report for report in split_kmemleak(KMEMLEAK.read_text()) if not is_foreign_leak(report)
    ]


def slab_kb() -> int:
    """Return the unreclaimable slab, kB; 0 if /proc/meminfo does not have it."""
    found = re.search(r"^SUnreclaim:\s+(\d+) kB", MEMINFO.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def objects() -> dict[str, int]:
    """Return the objects in use of the skb caches; empty without /proc/slabinfo."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in SLABINFO.read_text().splitlines():
            name, *numbers = line.split()
            if name in CACHES:
                found[name] = int(numbers[0])
    return found


def give_back() -> None:
    """Shrink all slab caches: objects in KASAN's quarantine count as in use."""
    for file in SHRINK.glob("*/shrink"):
        with suppress(OSError):
            file.write_text("1")


class Leaks:
    """Compare the memory in use after the first round with that at the end."""

    def __init__(self) -> None:
        self.slab_kb: list[int] = []
        self._objects: dict[str, int] = {}

    def round_ends(self) -> None:
        """Take the baseline after the first round: all of a round is freed but what leaked."""
        if not self.slab_kb:
            # Let RCU callbacks free their objects.
            time.sleep(_SETTLE_S)
            give_back()
            self.slab_kb.append(slab_kb())
            self._objects = objects()

    def end(self) -> str:
        """Return a report of what leaked; "": nothing was found.

        Namespaces and devices, and the packets queued there, are freed in the background: wait.
        """
        if not self.slab_kb:
            return ""
        grown = ""

        def gone() -> bool:
            nonlocal grown
            time.sleep(_SETTLE_S)
            give_back()
            grown = self._grown()
            return not grown

        wait_until(gone, _GOING_S)
        self.slab_kb.append(slab_kb())
        if grown:
            return grown
        found = "\n".join(kmemleak_reports())
        return f"kmemleak: {found[:2000]}" if found else ""

    def _grown(self) -> str:
        grown = slab_kb() - self.slab_kb[0]
        if grown > SLAB_KB:
            return f"{grown} kB more slab than after the first round"
        for name, count in objects().items():
            more = count - self._objects.get(name, count)
            if more > OBJECTS:
                return f"{more} more objects of {name} than after the first round"
        return ""
