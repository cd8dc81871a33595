# SPDX-License-Identifier: GPL-2.0-only
"""Records the host's other load during each run, in a file beside the guest's raw data.

Each run appends a line when it ends. If a run is repeated after an interruption, its new line
replaces the first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench import load
from bench.load import PROC, TICKS_PER_S, Load
from bench.report.files import NOISE_NAME


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
        """Start the first run's measurement."""
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
        shares = load.between(before, after)
        del shares["busy_share"]
        line = {
            "run": run,
            "wall_s": round(after.wall_s - before.wall_s, 4),
            "others_cpu_share": load.share(others, before, after),
            **shares,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _now(self) -> tuple[Load, float]:
        return load.read(self._proc), own_cpu_seconds(self._proc)
