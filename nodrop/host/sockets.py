# SPDX-License-Identifier: GPL-2.0-only
"""What waits in the sockets of a process: a VPN's queue behind its device, or before it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from nodrop.host import procfs

_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_RMEM, _WMEM = 0, 2
"""Of it: SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_WMEM_ALLOC."""
_SIOCINQ, _SIOCOUTQNSD = 0x541B, 0x894B
_SOCKETS = 1024
"""Sockets of a process that are asked; a proxy may have tens of thousands."""


@dataclass(frozen=True)
class Waiting:
    """What waits in the UDP, raw and TCP sockets of a process.

    UDP and raw sockets count memory: up to a few times the packets' bytes, and while a queue stays
    up to a quarter of the buffer more.

    Attributes:
        received: what the process has not read yet, bytes.
        unsent: what it has sent and TCP has not, or what waits in the qdisc or the driver of a
            lower device, bytes.
    """

    received: int = 0
    unsent: int = 0


def waiting(pid: int, proc: Path = Path("/proc")) -> Waiting | None:
    """Return what waits in a process's first _SOCKETS sockets; None: it cannot be asked.

    Its sockets are duplicated for a few system calls, which takes the right to trace it.
    """
    with suppress(OSError), ExitStack() as stack:
        process = os.pidfd_open(pid)
        stack.callback(os.close, process)
        fd = os.open(f"{proc}/{pid}/fd", procfs.DIRECTORY)
        stack.callback(os.close, fd)
        if procfs.answers(fd):
            parts = [_ask(process, number) for number in list(_sockets(fd))[:_SOCKETS]]
            received = sum(part.received for part in parts)
            return Waiting(received, sum(part.unsent for part in parts))
    return None


def _sockets(fd: int) -> Iterator[int]:
    for number in os.listdir(fd):
        with suppress(FileNotFoundError):
            if os.readlink(number, dir_fd=fd).startswith("socket:"):
                yield int(number)


def _ask(process: int, number: int) -> Waiting:
    """Return what waits in a process's socket; nothing if it is closed by now, or a listener.

    Raises:
        PermissionError: the process may not be traced.
    """
    try:
        with procfs.borrowed(process, number) as file:
            asked = socket.socket(fileno=file)
            try:
                return _queues(asked)
            finally:
                asked.detach()
    except PermissionError:
        raise
    except OSError:
        return Waiting()


def _queues(asked: socket.socket) -> Waiting:
    if asked.family not in (socket.AF_INET, socket.AF_INET6):
        return Waiting()
    if asked.type == socket.SOCK_STREAM:
        return Waiting(*(_number(asked, request) for request in (_SIOCINQ, _SIOCOUTQNSD)))
    memory = _MEMINFO.unpack(asked.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
    return Waiting(received=memory[_RMEM], unsent=memory[_WMEM])


def _number(asked: socket.socket, request: int) -> int:
    return int.from_bytes(fcntl.ioctl(asked.fileno(), request, bytes(4)), sys.byteorder)
