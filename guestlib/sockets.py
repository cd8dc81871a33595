# SPDX-License-Identifier: GPL-2.0-only
"""What Linux's sockets have beyond Python's socket module: charged bytes, zero-copy sends."""

from __future__ import annotations

import fcntl
import socket
import struct

SIOCOUTQ = 0x5411
SO_SNDBUFFORCE = 32
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
UDP_SEGMENT = 103
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER: a closed TCP connection sends a reset, and nothing later."""
_SOCK_EXTENDED_ERR = struct.Struct("=IBBBBII")
_FROM_ZEROCOPY = 5


def charged(sock: socket.socket | int) -> int:
    """Return the bytes charged to a socket's send buffer, for packets not yet consumed."""
    return int(struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0])


def grow(sock: socket.socket, size: int = 1 << 28) -> None:
    """Give a socket a send buffer of ``size`` bytes; needs root."""
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, size)


def completed(sock: socket.socket) -> int:
    """Return how many zero-copy sends the socket reports as complete since the last call."""
    total = 0
    while True:
        try:
            _, notes, _, _ = sock.recvmsg(1, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return total
        for _, _, note in notes:
            _, origin, _, _, _, first, last = _SOCK_EXTENDED_ERR.unpack_from(note)
            if origin == _FROM_ZEROCOPY:
                total += last - first + 1
