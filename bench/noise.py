# SPDX-License-Identifier: GPL-2.0-only
"""What else the host did during each run, beside the raw data that the guest writes.

One line for each run, written when the run has ended. A run that is made again, after an
interruption, gets another line in place of the first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench import load
from bench.load import PROC, TICKS_PER_S, Load
from bench.report.files import NOISE_NAME


def own_cpu_seconds(proc: Path = PROC, root: int | None = None) -> float:
    """Return the CPU seconds of a process and of all that it has started, ended or not.

    Args:
        root: the process; None: this one.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            # The name before the bracket may hold anything.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has gone; its parent has its time
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    family, root = 0, os.getpid() if root is None else root
    for number, spent in ticks.items():
        ancestor, seen = number, {number}
        while ancestor != root and ancestor in parents and parents[ancestor] not in seen:
            ancestor = parents[ancestor]
            seen.add(ancestor)
        family += spent if ancestor == root else 0
    return family / TICKS_PER_S


class HostNoise:
    """Watches the host from run to run.

    Args:
        out: the directory of the results.
    """

    def __init__(self, out: Path, proc: Path = PROC) -> None:
        self._path = out / NOISE_NAME
        self._proc = proc
        self._before: tuple[Load, float] | None = None

    def begins(self) -> None:
        """The first run begins now."""
        self._before = self._now()

    def ended(self, run: int) -> None:
        """Write down how it was since the run before.

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
        told = load.between(before, after)
        del told["busy_share"]
        line = {
            "run": run,
            "wall_s": round(after.wall_s - before.wall_s, 4),
            "others_cpu_share": load.share(others, before, after),
            **told,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _now(self) -> tuple[Load, float]:
        return load.read(self._proc), own_cpu_seconds(self._proc)
