# SPDX-License-Identifier: GPL-2.0-only
"""Who sends through a tunnel: a process on each CPU, UDP of all sizes, without an end."""

from __future__ import annotations

import mmap
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from nodrop.guest.command import netns_path
from nodrop.guest.netns import enter

BATCH, BATCHES = 32, 24
PAUSE_S = 0.002
SIZES = (18, 64, 500, 1000, 1360, 1472, 2800)
"""Bytes of payload: with some the outer packet does not fit, with the last the inner neither."""
_UDP_SEGMENT = 103
_MTU_DISCOVER, _MTU_DISCOVER6 = 10, 23
_SLOT = struct.Struct("=QQ")
_PORT = 9


class Counts:
    """Sent and refused packets of each process, in memory that all of them share."""

    def __init__(self, processes: int) -> None:
        self._memory = mmap.mmap(-1, max(_SLOT.size * processes, 1))
        self._processes = processes

    def put(self, process: int, done: int, failed: int) -> None:
        """Tell what a process has done so far; only it writes there."""
        _SLOT.pack_into(self._memory, process * _SLOT.size, done, failed)

    def of(self, process: int) -> int:
        """Return how much one process has done."""
        return int(_SLOT.unpack_from(self._memory, process * _SLOT.size)[0])

    def sums(self) -> tuple[int, int]:
        """Return how much was done and how much failed, by all."""
        both = [_SLOT.unpack_from(self._memory, at * _SLOT.size) for at in range(self._processes)]
        return sum(done for done, _ in both), sum(failed for _, failed in both)


Body = Callable[[Counts, int], None]


class Crew:
    """Processes that work until they are killed; a context manager.

    Args:
        jobs: for each process: the namespace it works in, its CPU or None, what it does.
    """

    def __init__(self, jobs: list[tuple[str, int | None, Body]]) -> None:
        self._jobs = jobs
        self._pids: list[int] = []
        self.counts = Counts(len(jobs))

    def __enter__(self) -> Self:
        for number, (netns, cpu, body) in enumerate(self._jobs):
            pid = os.fork()
            if not pid:
                self._child(number, netns, cpu, body)
            self._pids.append(pid)
        return self

    def _child(self, number: int, netns: str, cpu: int | None, body: Body) -> None:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            enter(netns_path(netns))
            if cpu is not None:
                os.sched_setaffinity(0, {cpu % (os.cpu_count() or 1)})
            body(self.counts, number)
            status = 0
        finally:
            os._exit(status)

    def dead(self) -> int:
        """Return how many have ended, which none should."""
        return sum(
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            for pid in self._pids
        )

    def kill(self) -> None:
        """Kill all and wait for them."""
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._pids = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def udp(address: str, value: int) -> Body:
    """Send to nobody at an address.

    Args:
        value: how its sockets are set up.
    """
    six = ":" in address
    family = socket.AF_INET6 if six else socket.AF_INET

    def body(counts: Counts, number: int) -> None:
        chance = random.Random(f"{value}/{number}")
        done = failed = 0
        while True:
            size = chance.choice(SIZES)
            with _socket(family, chance) as sock:
                done, failed = _batches(sock, bytes(size), address, counts, number, done, failed)

    return body


def _batches(
    sock: socket.socket,
    data: bytes,
    address: str,
    counts: Counts,
    number: int,
    done: int,
    failed: int,
) -> tuple[int, int]:
    """Send for a while by one socket; return how much was done and how much failed in all."""
    for _ in range(BATCHES):
        before = failed
        for _ in range(BATCH):
            try:
                sock.sendto(data, (address, _PORT))
                done += 1
            except OSError:
                failed += 1
        counts.put(number, done, failed)
        if failed != before:
            time.sleep(PAUSE_S)
    return done, failed


def _socket(family: int, chance: random.Random) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    # Path MTU discovery: never, as the route says, always, and regardless.
    mode = chance.randrange(4)
    if family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, _MTU_DISCOVER, mode)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, _MTU_DISCOVER6, mode)
    if chance.random() < 0.3:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 500)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sock.settimeout(1.0)
    return sock
