# SPDX-License-Identifier: GPL-2.0-only
"""The senders of a row, each in the row's namespace and through its device."""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import suppress
from typing import Self

from guestlib.timing import wait_until
from proof import bpf
from proof.sweep.devices import NAME
from proof.sweep.lab import LOWER, VLAN_ID
from proof.sweep.loops import MOST
from proof.sweep.payload import SIZE, TCP_PORT, echo, ethernet, payload, udp
from proof.sweep.sender import Sender

SEGMENTS = 10
"""Segments of a GSO packet."""
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
UDP_SEGMENT = 103
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: a closed connection sends a reset, and nothing during later rows."""
GROUP = "ff02::1"


class Udp(Sender):
    """A UDP socket."""

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def _one(self, number: int) -> None:
        self.sock.sendto(payload(number), (self.dut.address, self.port(number)))


class Forwarded(Udp):
    """The same in a namespace whose packets are forwarded, and so orphaned."""

    def __enter__(self) -> Self:
        self.dut.netns = self.dut.netns or "far"
        return super().__enter__()


class Gso(Udp):
    """UDP GSO packets."""

    step = SEGMENTS

    def _set_up(self) -> None:
        super()._set_up()
        self.sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)

    def _one(self, number: int) -> None:
        data = b"".join(payload(number + at) for at in range(SEGMENTS))
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
        self._memory.append(payload(number))
        self.sock.sendto(self._memory[-1], MSG_ZEROCOPY, to)
        self._waiting += 1
        if self._waiting % 64 == 0:
            self._complete()

    def _complete(self) -> None:
        with suppress(BlockingIOError):
            while self._waiting:
                flags = socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT
                _, notes, _, _ = self.sock.recvmsg(1, 128, flags)
                # ee_info and ee_data of struct sock_extended_err: first and last of a range.
                for _, _, note in notes:
                    first, last = struct.unpack_from("=8xII", note)
                    self._waiting -= last - first + 1

    def charged(self) -> int:
        """Return the same, plus the packets that are not yet completed."""
        self._complete()
        # A failed packet is counted as unsure and completed, too.
        return super().charged() + max(self._waiting, 0)


class Multicast(Sender):
    """IPv6 packets to all nodes of the link."""

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
        self.scope = socket.if_nametoindex(self.dut.out)

    def _one(self, number: int) -> None:
        self.sock.sendto(payload(number), (GROUP, self.port(number), 0, self.scope))


class Packet(Sender):
    """A packet socket."""

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
        packet = udp(dut.peer, dut.address, number, self.port(number))
        self.sock.sendto(self.head + packet, self.to)


class Bypass(Packet):
    """The same, with PACKET_QDISC_BYPASS."""

    bypass = True


class Xdp(Packet):
    """Frames that arrive on a veth, where XDP redirects them to the device."""

    def __enter__(self) -> Self:
        self.dut.netns = "far"
        self._stack.enter_context(bpf.xdp(LOWER, bpf.redirect(socket.if_nametoindex(NAME))))
        return super().__enter__()


class Icmp(Sender):
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
        request = self.head + echo(dut.address, dut.peer, number)
        os.pwritev(dut.fds[0], [request], -1, os.RWF_NOWAIT)


class Tcp(Sender):
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
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server: socket.socket | None = None
        self.received = b""
        self.count = 0

    def begin(self) -> None:
        """Connect."""
        self.sockets = [self.client]
        self.client.connect_ex((self.dut.address, TCP_PORT))

        def accepted() -> bool:
            with suppress(BlockingIOError):
                self.server = self._stack.enter_context(self.listener.accept()[0])
                self.server.setblocking(False)
                self.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return self.server is not None

        if not wait_until(accepted):
            raise AssertionError("no TCP connection is established")

    def _one(self, number: int) -> None:
        poll = select.poll()
        poll.register(self.client, select.POLLOUT)
        poll.poll(100)
        # Small enough to be sent whole.
        self.client.send(payload(number))

    def came(self) -> int:
        """Return how many payloads arrived at the other end."""
        with suppress(BlockingIOError):
            while self.server and (data := self.server.recv(1 << 16)):
                self.received += data
        while len(self.received) >= SIZE:
            assert self.received[:SIZE] == payload(self.count), "TCP's bytes were changed"
            self.received = self.received[SIZE:]
            self.count += 1
        return self.count


KINDS: dict[str, type[Sender]] = {
    "udp": Udp,
    "tcp": Tcp,
    "packet": Packet,
    "bypass": Bypass,
    "bridged": Packet,
    "forwarded": Forwarded,
    "xdp": Xdp,
    "icmp": Icmp,
    "multicast": Multicast,
    "gso": Gso,
    "zerocopy": Zerocopy,
}
