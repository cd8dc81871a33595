# SPDX-License-Identifier: GPL-2.0-only
"""A load of UDP or TCP, from a process of its own: at most one CPU, no priority.

Its socket blocks, so backpressure paces it. UDP has a maximum rate as well, since without
backpressure nothing else would limit it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from mmap import mmap

from nodrop.host.netns import Child

DISCARD = 9
"""The UDP port that discards what it gets (RFC 863)."""
MOST_BYTES = 1500
"""Of a UDP packet, with its IP header."""
AHEAD_S = 0.001
"""Bursts of UDP are shorter than twice this: they alone do not fill a ring."""
_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
_MTU = {socket.AF_INET: (socket.IPPROTO_IP, 14), socket.AF_INET6: (socket.IPPROTO_IPV6, 24)}
"""IP_MTU, IPV6_MTU."""
_ANSWERS = (
    *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES),
    *(errno.ENOPROTOOPT, errno.EPROTO, errno.EMSGSIZE),
)
"""What send() returns, once each, for ICMP errors: that the peer or a firewall refuses the port."""
_MOST_FAILED = 100
"""In a row, so it is no answer but this host that cannot send."""
_BLOCKED = struct.pack("ll", 0, 100_000)
"""How long a send may block until the sender checks whether to end, as a struct timeval."""
_BYTES_ACKED = 120
"""Offset of tcpi_bytes_acked in struct tcp_info."""


class Control:
    """Memory that a load shares with the process that started it."""

    def __init__(self) -> None:
        self._shared = mmap(-1, 16)
        self._parent = os.getpid()

    def end(self) -> None:
        self._shared[0] = 1

    @property
    def ended(self) -> bool:
        """Whether the load must end; it does with its parent."""
        return self._shared[0] == 1 or os.getppid() != self._parent

    @property
    def done(self) -> int:
        """UDP: datagrams sent; TCP: bytes that the peer has acknowledged."""
        return int.from_bytes(self._shared[8:], "little")

    @done.setter
    def done(self, value: int) -> None:
        self._shared[8:] = value.to_bytes(8, "little")


@contextmanager
def running(
    send: Callable[[socket.socket, Control], None], sock: socket.socket, most_s: float
) -> Iterator[Control]:
    """Send during the block, at most for some seconds.

    Raises:
        OSError: at the end: it could not send.
    """
    control = Control()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _BLOCKED)
    with Child(partial(send, sock, control), most_s) as child:
        yield control
        control.end()
        child.result("The load was killed.")


def udp(mbit_per_s: float, sock: socket.socket, control: Control) -> None:
    """Send datagrams.

    Args:
        mbit_per_s: the maximum, with IP headers.
    """
    payload, due, sent, failed = _payload(sock), time.monotonic(), 0, 0
    while not control.ended:
        now = time.monotonic()
        if due > now + AHEAD_S:
            time.sleep(due - now)
            continue
        try:
            sock.send(payload)
        except BlockingIOError:  # it was blocked for long
            continue
        except OSError as error:
            failed += 1
            if error.errno not in _ANSWERS or failed > _MOST_FAILED:
                raise
            payload = _payload(sock)
            continue
        failed = 0
        control.done = sent = sent + 1
        size = len(payload) + _HEADERS[sock.family]
        due = max(due, now - AHEAD_S) + size * 8e-6 / mbit_per_s


def _payload(sock: socket.socket) -> bytes:
    """Return the payload of the longest packet."""
    return bytes(min(sock.getsockopt(*_MTU[sock.family]), MOST_BYTES) - _HEADERS[sock.family])


def tcp(sock: socket.socket, control: Control) -> None:
    """Send on a connection, which its last close resets."""
    # So nothing stays queued, and the kernel forgets the path's metrics, which it would use for the
    # next connection.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    data = bytes(1 << 16)
    while not control.ended:
        with suppress(BlockingIOError):
            sock.send(data)
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        control.done = struct.unpack_from("=Q", info, _BYTES_ACKED)[0]
