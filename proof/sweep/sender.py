# SPDX-License-Identifier: GPL-2.0-only
"""What all senders have in common: their namespace, their sockets, the account of their calls."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from contextlib import ExitStack
from typing import Self

from lab.guest.namespaces import inside
from lab.guest.process import netns_path
from proof.sweep.devices import Victim
from proof.sweep.payload import PORT

SIOCOUTQ = 0x5411
SO_SNDBUFFORCE = 32
HUGE = 32 << 20
"""Bytes of a send buffer that no burst fills."""
FLOWS = 4
"""Ports, where there are several queues."""
BLOCKED = struct.pack("ll", 0, 100_000)
"""How often a sender that is blocked looks for orders, as a struct timeval."""

NOT_MADE = frozenset(
    {
        errno.EAGAIN,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENODEV,
        errno.ENXIO,
        errno.EADDRNOTAVAIL,
    }
)
"""Errors before a packet is made."""


class Sender:
    """Sends numbered packets; a context manager.

    Attributes:
        sent: packets that the kernel took; the next one's number.
        refused: calls whose packets were dropped before they returned.
        unsure: of these, those of calls that failed without saying whether they made one.
        step: packets of a call.
    """

    step = 1

    def __init__(self, victim: Victim) -> None:
        self.victim, self.row = victim, victim.row
        self.sent = self.refused = self.unsure = self.errors = 0
        self._stack = ExitStack()
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            if self.victim.netns:
                with inside(netns_path(self.victim.netns)):
                    self._set_up()
            else:
                self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Make a socket that blocks for a moment, or for bursts never."""
        sock = self._stack.enter_context(socket.socket(family, kind, protocol))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, BLOCKED)
        if self.row.pace == "burst":
            sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, HUGE)
        self.sockets.append(sock)
        return sock

    def _set_up(self) -> None:
        """Make what sends, in the senders' namespace."""
        raise NotImplementedError

    def _one(self, number: int) -> None:
        """Send a packet, or raise OSError."""
        raise NotImplementedError

    def begin(self) -> None:
        """What needs a reader before the first packet."""

    def came(self) -> int | None:
        """Return what came, where the reader cannot know."""
        return None

    def send(self) -> bool:
        """Send the next packets; False: nothing was sent."""
        try:
            self._one(self.sent)
        except OSError as error:
            if error.errno in NOT_MADE:
                # EAGAIN: it is blocked. At first it may have no address yet.
                self.errors += error.errno != errno.EAGAIN and self.sent > 0
                return False
            # It was made and dropped, and the kernel says so.
            if error.errno == errno.ENOBUFS:
                self.refused += 1
            else:
                self.unsure += self.step
        self.sent += self.step
        return True

    def charged(self) -> int:
        """Return the bytes that its sockets are charged with."""
        return sum(
            struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0] for sock in self.sockets
        )

    def port(self, number: int) -> int:
        """Return where a packet is sent to."""
        return PORT + (number % FLOWS if self.row.neighbour == "slow" else 0)
