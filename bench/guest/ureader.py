# SPDX-License-Identifier: GPL-2.0-only
"""A program as the reader of a TAP (lab/traffic/tun_reader.c), counted from outside."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from lab.guest.command import Service
from lab.guest.kreader import Counts, Way

_SWITCHES = re.compile(r"^(voluntary|nonvoluntary)_ctxt_switches:\s*(\d+)$", re.MULTILINE)


def command(
    program: Path, device: str, flags: str, *, cpu: int, work_ns: int, fifo: bool
) -> list[str]:
    """Return the command that reads a TAP.

    Args:
        flags: for the program's ``--flags``.
        cpu: CPU to stay on, -1 for any.
        work_ns: busy time per packet, ns.
        fifo: run as SCHED_FIFO, ahead of a sender on the same CPU.
    """
    words = ["taskset", "--cpu-list", str(cpu)] if cpu >= 0 else []
    words += ["chrt", "--fifo", "1"] if fifo else []
    words += [str(program), "--mode", "tap", "--name", device]
    return [*words, "--flags", flags, "--work-ns", str(work_ns)]


def switches(texts: Iterable[str]) -> tuple[int, int]:
    """Return voluntary and involuntary switches of threads, by their /proc/PID/status."""
    total = {"voluntary": 0, "nonvoluntary": 0}
    for text in texts:
        for name, number in _SWITCHES.findall(text):
            total[name] += int(number)
    return total["voluntary"], total["nonvoluntary"]


class UserReader:
    """A running reader of a device.

    Args:
        program: the reader, started by :func:`command`.
        device: what it reads.
    """

    def __init__(self, program: Service, device: str) -> None:
        self._tasks = Path(f"/proc/{program.pid}/task")
        self._packets = Path(f"/sys/class/net/{device}/statistics/tx_packets")

    def read(self) -> Counts:
        """Return the counts so far; not all are known."""
        texts = [path.read_text(errors="replace") for path in self._tasks.glob("*/status")]
        voluntary, involuntary = switches(texts)
        return Counts(
            there=Way(int(self._packets.read_text())),
            back=Way(0),
            now_ns=time.monotonic_ns(),
            idle_ns=0,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            others=0,
        )
