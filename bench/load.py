# SPDX-License-Identifier: GPL-2.0-only
"""Reads how busy a machine is from its procfs, on the host and in a guest.

The host's other load during each run goes to a file beside the guest's raw data. Each run appends a
line when it ends. If a run is repeated after an interruption, its new line replaces the first.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

NOISE_NAME = "noise.jsonl"
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
    available_s = (after.wall_s - before.wall_s) * after.cpus
    return round(min(max(seconds / available_s, 0.0), 1.0), 4) if available_s > 0 else 0.0


def between(before: Load, after: Load) -> dict[str, float]:
    """Return the load between two moments, as recorded in the raw data."""
    return {
        "busy_share": share(after.busy_s - before.busy_s, before, after),
        "steal_share": share(after.steal_s - before.steal_s, before, after),
        "load_1min_before": before.load_1min,
        "load_1min_after": after.load_1min,
    }


def own_cpu_seconds(proc: Path = PROC, root: int | None = None) -> float:
    """Return the CPU seconds of a process and all its descendants, ended ones included.

    Args:
        root: the process; None: this one.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    # Not a glob for the files: it fails if a process ends meanwhile.
    for pid in (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        try:
            # The process name before the bracket may contain anything.
            text = (proc / f"{pid}/stat").read_text(errors="replace")
        except OSError:
            continue  # it has ended; its parent has its CPU time
        fields = text.rpartition(")")[2].split()
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
    family, root = 0, os.getpid() if root is None else root
    for number, spent in ticks.items():
        ancestor, seen = number, {number}
        while ancestor != root and ancestor in parents and parents[ancestor] not in seen:
            ancestor = parents[ancestor]
            seen.add(ancestor)
        family += spent if ancestor == root else 0
    return family / TICKS_PER_S


class HostNoise:
    """Measures the host's load from run to run.

    Args:
        out: the results directory.
    """

    def __init__(self, out: Path, proc: Path = PROC) -> None:
        self._path = out / NOISE_NAME
        self._proc = proc
        self._before: tuple[Load, float] | None = None

    def start(self) -> None:
        self._before = self._now()

    def record(self, run: int) -> None:
        """Record the load since the previous run.

        Args:
            run: number of the run in the plan, from 0.

        Raises:
            OSError: the file cannot be written.
        """
        (after, own), last = self._now(), self._before
        self._before = (after, own)
        if last is None:
            return
        before, own_before = last
        others = (after.busy_s - before.busy_s) - (own - own_before)
        shares = between(before, after)
        del shares["busy_share"]
        line = {
            "run": run,
            "wall_s": round(after.wall_s - before.wall_s, 4),
            "others_cpu_share": share(others, before, after),
            **shares,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _now(self) -> tuple[Load, float]:
        return read(self._proc), own_cpu_seconds(self._proc)
