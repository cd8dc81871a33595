# SPDX-License-Identifier: GPL-2.0-only
"""The senders of a row, each in the row's namespace and through its device."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from contextlib import ExitStack, suppress
from typing import Self

from guestlib.environment import wait_until
from guestlib.namespaces import inside
from guestlib.packets import PORT, SIZE, TCP_PORT, ethernet, numbered, numbered_echo, numbered_udp
from guestlib.sockets import (
    MSG_ZEROCOPY,
    PACKET_QDISC_BYPASS,
    RESET_ON_CLOSE,
    SO_ZEROCOPY,
    SOL_PACKET,
    UDP_SEGMENT,
    charged,
    completed,
    grow,
)
from guestlib.taps import LOWER
from proof import bpf
from proof.sweep.readers import MOST
from proof.sweep.topology import NAME, VLAN_ID, Dut

HUGE = 32 << 20
"""A send buffer that no burst fills, bytes."""
FLOWS = 4
"""Destination ports, if there are several queues."""
BLOCKED = struct.pack("ll", 0, 100_000)
"""Timeout of a blocked send, as a struct timeval."""

SEGMENTS = 10
"""Segments of a GSO packet."""
GROUP = "ff02::1"

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


class RowSender:
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
            with inside(self.dut.netns):
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
            grow(sock, HUGE)
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
        return sum(map(charged, self.sockets))

    def port(self, number: int) -> int:
        return PORT + (number % FLOWS if self.row.neighbour == "slow" else 0)


class Udp(RowSender):
    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def _one(self, number: int) -> None:
        self.sock.sendto(numbered(number), (self.dut.address, self.port(number)))


class Forwarded(Udp):
    """The same in a namespace whose packets are forwarded, and so orphaned."""

    def __enter__(self) -> Self:
        self.dut.netns = self.dut.netns or "far"
        return super().__enter__()


class Gso(Udp):
    step = SEGMENTS

    def _set_up(self) -> None:
        super()._set_up()
        self.sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)

    def _one(self, number: int) -> None:
        data = b"".join(numbered(number + at) for at in range(SEGMENTS))
        self.sock.sendto(data, (self.dut.address, self.port(number)))


class Zerocopy(Udp):
    """Zerocopy packets: their data stay in the sender's memory."""

    def _set_up(self) -> None:
        super()._set_up()
        self.sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        self._waiting = 0
        self._memory: list[bytes] = []
        """Payloads sent: queued packets refer to them."""

    def _one(self, number: int) -> None:
        to = (self.dut.address, self.port(number))
        self._memory.append(numbered(number))
        self.sock.sendto(self._memory[-1], MSG_ZEROCOPY, to)
        self._waiting += 1
        if self._waiting % 64 == 0:
            self._waiting -= completed(self.sock)

    def charged(self) -> int:
        self._waiting -= completed(self.sock)
        # A failed packet is counted as unsure and completed, too.
        return super().charged() + max(self._waiting, 0)


class Multicast(RowSender):
    """IPv6 packets to all nodes of the link."""

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
        self.scope = socket.if_nametoindex(self.dut.out)

    def _one(self, number: int) -> None:
        self.sock.sendto(numbered(number), (GROUP, self.port(number), 0, self.scope))


class PacketSocket(RowSender):
    bypass = False

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_PACKET, socket.SOCK_RAW)
        dut = self.dut
        out = dut.out
        if self.bypass:
            self.sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            out = out if dut.netns else NAME
        elif self.row.sender == "xdp":
            out = "up1"
        self.to = (out, 0x0800)
        vlan = VLAN_ID if out == NAME and self.row.neighbour == "vlan" else 0
        source = dut.lab.up1_mac if dut.netns else dut.peer_mac
        self.head = b"" if self.row.kind == "tun" else ethernet(dut.mac, source, vlan)

    def _one(self, number: int) -> None:
        dut = self.dut
        packet = numbered_udp(dut.peer, dut.address, number, self.port(number))
        self.sock.sendto(self.head + packet, self.to)


class Bypass(PacketSocket):
    """The same, with PACKET_QDISC_BYPASS."""

    bypass = True


class Xdp(PacketSocket):
    """Frames that arrive on a veth, where XDP redirects them to the device."""

    def __enter__(self) -> Self:
        self.dut.netns = "far"
        self._stack.enter_context(bpf.xdp(LOWER, bpf.redirect(socket.if_nametoindex(NAME))))
        return super().__enter__()


class Icmp(RowSender):
    """Echo requests written to the device; the kernel's replies are the test packets.

    The kernel's socket is charged for them; if its buffer is full, no reply is created.
    """

    def _set_up(self) -> None:
        dut = self.dut
        vlan = VLAN_ID if self.row.neighbour == "vlan" and not self.row.above else 0
        head = ethernet(dut.peer_mac, dut.mac, vlan)
        self.head = b"" if self.row.kind == "tun" else head
        if self.row.event in ("down", "netns"):
            # Meanwhile there is no route back; replies not created for that reason are not counted.
            self.unsure = MOST

    def _one(self, number: int) -> None:
        dut = self.dut
        request = self.head + numbered_echo(dut.address, dut.peer, number)
        os.pwritev(dut.fds[0], [request], -1, os.RWF_NOWAIT)


class TcpSender(RowSender):
    """A TCP connection whose packets the reader writes back, so that both ends are here."""

    def _set_up(self) -> None:
        dut = self.dut
        self.listener = self.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((dut.peer, TCP_PORT))
        self.listener.listen(1)
        self.listener.setblocking(False)
        self.client = self.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.client.setblocking(False)
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server: socket.socket | None = None
        self.received = b""
        self.count = 0

    def begin(self) -> None:
        self.sockets = [self.client]
        self.client.connect_ex((self.dut.address, TCP_PORT))

        def accepted() -> bool:
            with suppress(BlockingIOError):
                self.server = self._stack.enter_context(self.listener.accept()[0])
                self.server.setblocking(False)
                self.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            return self.server is not None

        if not wait_until(accepted):
            raise AssertionError("no TCP connection is established")

    def _one(self, number: int) -> None:
        poll = select.poll()
        poll.register(self.client, select.POLLOUT)
        poll.poll(100)
        # Small enough to be sent whole.
        self.client.send(numbered(number))

    def came(self) -> int:
        """Return how many payloads arrived at the other end."""
        with suppress(BlockingIOError):
            while self.server and (data := self.server.recv(1 << 16)):
                self.received += data
        while len(self.received) >= SIZE:
            assert self.received[:SIZE] == numbered(self.count), "TCP's bytes were changed"
            self.received = self.received[SIZE:]
            self.count += 1
        return self.count


KINDS: dict[str, type[RowSender]] = {
    "udp": Udp,
    "tcp": TcpSender,
    "packet": PacketSocket,
    "bypass": Bypass,
    "bridged": PacketSocket,
    "forwarded": Forwarded,
    "xdp": Xdp,
    "icmp": Icmp,
    "multicast": Multicast,
    "gso": Gso,
    "zerocopy": Zerocopy,
}
