# SPDX-License-Identifier: GPL-2.0-only
"""A program as the reader of a TAP (lab/traffic/tun_reader.c), counted from outside."""

from __future__ import annotations

import time
from pathlib import Path

from lab.guest.kreader import Counts, Way
from lab.guest.process import Service, switches


def command(program: Path, tap_fd: int, *, cpu: int, work_ns: int, fifo: bool) -> list[str]:
    """Return the command that reads a TAP.

    Args:
        tap_fd: which is open, and passed on.
        cpu: CPU to stay on, -1 for any.
        work_ns: busy time per packet, ns.
        fifo: run as SCHED_FIFO, ahead of a sender on the same CPU.
    """
    words = ["taskset", "--cpu-list", str(cpu)] if cpu >= 0 else []
    words += ["chrt", "--fifo", "1"] if fifo else []
    return [*words, str(program), "--tap", "--fd", str(tap_fd), "--work-ns", str(work_ns)]


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
        voluntary, involuntary = switches(self._tasks.glob("*/status"))
        return Counts(
            there=Way(int(self._packets.read_text())),
            back=Way(0),
            now_ns=time.monotonic_ns(),
            idle_ns=0,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            others=0,
        )
