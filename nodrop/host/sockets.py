# SPDX-License-Identifier: GPL-2.0-only
"""What waits in the sockets of a process, from /proc: a VPN's queues beside its device's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from itertools import islice
from operator import add
from pathlib import Path

_TABLES = ("udp", "udp6", "tcp", "tcp6")
_QUEUES, _STATE, _INODE = 4, 3, 9
"""Columns of these tables in /proc/PID/net."""
_LISTEN = "0A"
"""A state in which TCP counts connections, not bytes."""
_MOST = 1 << 16
"""Files of a process, and rows of a table, that are read; a proxy may have more."""
_GUEST = "anon_inode:kvm-vm"


@dataclass(frozen=True)
class Waiting:
    """What waits in the UDP and TCP sockets of a process.

    UDP's figures are memory: a packet takes some 700 bytes and more besides its own.

    Attributes:
        unread: what has arrived, and the process has not read, bytes.
        unsent: what it has sent by UDP, and waits for a lower device, bytes.
        unacknowledged: what it has sent by TCP, and the other end has not acknowledged, bytes: what
            is on the path, too.
    """

    unread: int = 0
    unsent: int = 0
    unacknowledged: int = 0

    def least(self, other: Waiting) -> Waiting:
        """Return what waited at both times, at least."""
        return Waiting(*map(min, astuple(self), astuple(other)))

    def __add__(self, other: Waiting) -> Waiting:
        return Waiting(*map(add, astuple(self), astuple(other)))


def waiting(pid: int, proc: Path = Path("/proc")) -> Waiting | None:
    """Return what waits in a process's sockets in its namespace.

    Returns:
        None: it ended, may not be inspected, or runs a virtual machine.
    """
    with suppress(OSError):
        links = [*islice(_links(f"{proc}/{pid}/fd"), _MOST)]
        if _GUEST in links:
            return None
        own = {link[8:-1] for link in links if link.startswith("socket:[")}
        unread = unsent = unacknowledged = 0
        for table in _TABLES if own else ():
            for state, sent, received in _queues(f"{proc}/{pid}/net/{table}", own):
                if table.startswith("udp"):
                    unsent += sent
                    unread += received
                elif state != _LISTEN:
                    unacknowledged += sent
                    unread += received
        return Waiting(unread, unsent, unacknowledged)
    return None


def _links(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                yield os.readlink(entry.path)


def _queues(path: str, inodes: set[str]) -> Iterator[tuple[str, int, int]]:
    """Yield state, send queue and receive queue of some sockets; nothing without IPv6."""
    with suppress(FileNotFoundError), open(path, encoding="ascii") as rows:
        for row in islice(rows, 1, _MOST):
            columns = row.split()
            if columns[_INODE] in inodes:
                sent, _, received = columns[_QUEUES].partition(":")
                yield columns[_STATE], int(sent, 16), int(received, 16)
