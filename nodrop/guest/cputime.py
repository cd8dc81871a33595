# SPDX-License-Identifier: GPL-2.0-only
"""CPU time of the processes of a guest."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_PROCESS_CLOCK = 2


def process_ns(pid: int) -> int:
    """Return the CPU time of all threads of a process, ns; in user-mode Linux in ticks of 10 ms.

    Raises:
        OSError: there is none.
    """
    # The number of a process's clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int(
                    _fields((entry / "stat").read_text(errors="replace"))[1]
                )
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def family_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, seconds; 0 of those that are gone."""
    taken = 0
    for one in family(pid):
        with suppress(OSError):
            taken += process_ns(one)
    return taken / 1e9


def _fields(stat: str) -> list[str]:
    # The name before the bracket may hold anything.
    return stat.rpartition(")")[2].split()
