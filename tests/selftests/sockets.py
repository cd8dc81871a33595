# SPDX-License-Identifier: GPL-2.0-only
"""The memory of a socket that is charged for packets on their way, and the kernel's answers."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from harness import THERE

from nodrop.guest.tunnels.kinds import checksum

SIOCOUTQ = 0x5411
MOST = 20_000
"""Packets of 1000 bytes that no socket's memory has room for."""


def held_by(sock: socket.socket) -> int:
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


def echo_request(source: str, destination: str, number: int, *, size: int = 56) -> bytes:
    """An IPv4 packet that is answered by the kernel of where it is for."""
    icmp = struct.pack("!BBHHH", 8, 0, 0, 1, number) + bytes(size)
    icmp = icmp[:2] + struct.pack("!H", checksum(icmp)) + icmp[4:]
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    ip = struct.pack("!BBHIBBH", 0x45, 0, 20 + len(icmp), 0, 64, socket.IPPROTO_ICMP, 0)
    return ip[:10] + struct.pack("!H", checksum(ip + addresses)) + addresses + icmp
