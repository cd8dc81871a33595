# SPDX-License-Identifier: GPL-2.0-only
"""A socket's send buffer: the bytes charged for packets that are not yet consumed."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from harness import THERE

SIOCOUTQ = 0x5411
SO_SNDBUFFORCE = 32
MOST = 20_000
"""More packets of 1000 bytes than any send buffer takes."""


def charged(sock: socket.socket) -> int:
    """Return the bytes charged to a socket's send buffer."""
    return int(struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0])


def grow(sock: socket.socket) -> None:
    """Give the socket a send buffer that no test fills."""
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 28)


def fill(sock: socket.socket) -> None:
    """Make the socket non-blocking, and send until its send buffer is full."""
    sock.setblocking(False)
    for _ in range(MOST):
        try:
            sock.sendto(bytes(1000), (THERE, 9))
        except BlockingIOError:
            return
    raise AssertionError("no backpressure: the socket's send buffer does not fill")


@contextmanager
def one_cpu(cpu: int = 0) -> Iterator[None]:
    """Pin this thread and those that it starts, and so what they send, to a CPU for the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
