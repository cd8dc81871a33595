# SPDX-License-Identifier: GPL-2.0-only
"""The base class of senders: their namespace, their sockets, the counts of their calls."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from contextlib import ExitStack
from typing import Self

from guestlib.namespaces import inside
from guestlib.process import netns_path
from proof.sweep.devices import Dut
from proof.sweep.payload import PORT

SIOCOUTQ = 0x5411
SO_SNDBUFFORCE = 32
HUGE = 32 << 20
"""A send buffer that no burst fills, bytes."""
FLOWS = 4
"""Destination ports, if there are several queues."""
BLOCKED = struct.pack("ll", 0, 100_000)
"""Timeout of a blocked send, as a struct timeval."""

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
"""Errors before a packet is created."""


class Sender:
    """Send numbered packets; a context manager.

    Attributes:
        sent: packets that the kernel took; the next one's number.
        refused: calls that reported their packet as dropped (ENOBUFS).
        unsure: packets of calls that failed and may have created them or not.
        step: packets per call.
    """

    step = 1

    def __init__(self, dut: Dut) -> None:
        self.dut, self.row = dut, dut.row
        self.sent = self.refused = self.unsure = self.errors = 0
        self._stack = ExitStack()
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            if self.dut.netns:
                with inside(netns_path(self.dut.netns)):
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
        """Open a socket with a send timeout; one for bursts never blocks."""
        sock = self._stack.enter_context(socket.socket(family, kind, protocol))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, BLOCKED)
        if self.row.pace == "burst":
            sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, HUGE)
        self.sockets.append(sock)
        return sock

    def _set_up(self) -> None:
        """Open the sockets; called in the senders' namespace."""
        raise NotImplementedError

    def _one(self, number: int) -> None:
        """Send a packet; raise OSError if the kernel refuses it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Do what needs a reader before the first packet."""

    def came(self) -> int | None:
        """Return the packets that arrived, if only the sender can know."""
        return None

    def send(self) -> bool:
        """Send the next packets; return False if none was sent."""
        try:
            self._one(self.sent)
        except OSError as error:
            if error.errno in NOT_MADE:
                # EAGAIN: it is blocked. Before the first packet the address may not be set yet.
                self.errors += error.errno != errno.EAGAIN and self.sent > 0
                return False
            # The kernel reports that it dropped the packet.
            if error.errno == errno.ENOBUFS:
                self.refused += 1
            else:
                self.unsure += self.step
        self.sent += self.step
        return True

    def charged(self) -> int:
        """Return the bytes charged to its sockets."""
        return sum(
            struct.unpack("i", fcntl.ioctl(sock, SIOCOUTQ, bytes(4)))[0] for sock in self.sockets
        )

    def port(self, number: int) -> int:
        """Return a packet's destination port."""
        return PORT + (number % FLOWS if self.row.neighbour == "slow" else 0)
