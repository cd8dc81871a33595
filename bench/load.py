# SPDX-License-Identifier: GPL-2.0-only
"""Reads how busy a machine is from its procfs, on the host and in a guest."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """Counters at one moment; the difference of two gives shares.

    Attributes:
        wall_s: monotonic clock, seconds.
        cpus: online CPUs.
        busy_s: CPU seconds since boot in programs and interrupts of this machine.
        steal_s: CPU seconds since boot that a hypervisor took.
        load_1min: runnable tasks, averaged over about a minute.
    """

    wall_s: float
    cpus: int
    busy_s: float
    steal_s: float
    load_1min: float


def read(proc: Path = PROC) -> Load:
    """Read the counters.

    Raises:
        OSError: there is no procfs.
        ValueError: it has another form.
    """
    lines = (proc / "stat").read_text().splitlines()
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, lines[0].split()[1:9])
    return Load(
        wall_s=time.monotonic(),
        cpus=sum(line.startswith("cpu") for line in lines) - 1,
        busy_s=(user + nice + system + irq + softirq) / TICKS_PER_S,
        steal_s=steal / TICKS_PER_S,
        load_1min=float((proc / "loadavg").read_text().split()[0]),
    )


def share(seconds: float, before: Load, after: Load) -> float:
    """Return CPU seconds as a share of all CPU time between two moments, 0 to 1."""
    whole = (after.wall_s - before.wall_s) * after.cpus
    return round(min(max(seconds / whole, 0.0), 1.0), 4) if whole > 0 else 0.0


def between(before: Load, after: Load) -> dict[str, float]:
    """Return the load between two moments, as recorded in the raw data."""
    return {
        "busy_share": share(after.busy_s - before.busy_s, before, after),
        "steal_share": share(after.steal_s - before.steal_s, before, after),
        "load_1min_before": before.load_1min,
        "load_1min_after": after.load_1min,
    }
