# SPDX-License-Identifier: GPL-2.0-only
"""The memory of a socket that is charged for packets on their way."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from harness import THERE

SIOCOUTQ = 0x5411
MOST = 20_000
"""Packets of 1000 bytes that no socket's memory has room for."""


def charged(sock: socket.socket) -> int:
    """Bytes of the socket's memory that are charged for packets on their way."""
    return int(struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0])


def fill(sock: socket.socket) -> None:
    """Send until the socket's memory is used up; it no longer blocks then."""
    sock.setblocking(False)
    for _ in range(MOST):
        try:
            sock.sendto(bytes(1000), (THERE, 9))
        except BlockingIOError:
            return
    raise AssertionError("nothing holds the socket's packets")


@contextmanager
def one_cpu() -> Iterator[None]:
    """Stay on a CPU, and with us what is sent from here."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
