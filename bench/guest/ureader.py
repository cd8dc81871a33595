# SPDX-License-Identifier: GPL-2.0-only
"""Reads a TAP with a program (guestlib/traffic/tun_reader.c); its packets are counted outside."""

from __future__ import annotations

import time
from pathlib import Path

from guestlib.kreader import Counts, Direction
from guestlib.process import Service, switches


def command(program: Path, tap_fd: int, *, cpu: int, work_ns: int, fifo: bool) -> list[str]:
    """Return the command that reads a TAP.

    Args:
        tap_fd: file descriptor of the TAP, which the command inherits.
        cpu: its CPU, -1: any.
        work_ns: busy time per packet, ns.
        fifo: run as SCHED_FIFO, with priority over a sender on the same CPU.
    """
    words = ["taskset", "--cpu-list", str(cpu)] if cpu >= 0 else []
    words += ["chrt", "--fifo", "1"] if fifo else []
    return [*words, str(program), "--tap", "--fd", str(tap_fd), "--work-ns", str(work_ns)]


class UserReader:
    """A running reader of a device.

    Args:
        program: the reader, started by :func:`command`.
        device: the name of its device.
    """

    def __init__(self, program: Service, device: str) -> None:
        self._tasks = Path(f"/proc/{program.pid}/task")
        self._packets = Path(f"/sys/class/net/{device}/statistics/tx_packets")

    def read(self) -> Counts:
        """Return the counts so far; those that are unknown are 0."""
        voluntary, involuntary = switches(self._tasks.glob("*/status"))
        return Counts(
            forward=Direction(int(self._packets.read_text())),
            reverse=Direction(0),
            now_ns=time.monotonic_ns(),
            idle_ns=0,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            others=0,
        )
