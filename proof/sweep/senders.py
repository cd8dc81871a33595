# SPDX-License-Identifier: GPL-2.0-only
"""The senders of a row, each in the namespace and through the device that the row says."""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import suppress
from typing import Self

from lab.guest.timing import wait_until
from proof import bpf
from proof.sweep.devices import NAME
from proof.sweep.lab import LOWER, VLAN_ID
from proof.sweep.loops import MOST
from proof.sweep.payload import SIZE, TCP_PORT, echo, ethernet, payload, udp
from proof.sweep.sender import Sender

SEGMENTS = 10
"""Of a large packet."""
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
UDP_SEGMENT = 103
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: an end that is closed sends a reset, and nothing during later rows."""
GROUP = "ff02::1"


class Udp(Sender):
    """A socket of UDP; also what is forwarded is sent so, elsewhere."""

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def _one(self, number: int) -> None:
        self.sock.sendto(payload(number), (self.victim.address, self.port(number)))


class Forwarded(Udp):
    """The same from a namespace whose packets are forwarded: they lose their socket."""

    def __enter__(self) -> Self:
        self.victim.netns = self.victim.netns or "far"
        return super().__enter__()


class Gso(Udp):
    """Large packets, which somebody cuts."""

    step = SEGMENTS

    def _set_up(self) -> None:
        super()._set_up()
        self.sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)

    def _one(self, number: int) -> None:
        data = b"".join(payload(number + at) for at in range(SEGMENTS))
        self.sock.sendto(data, (self.victim.address, self.port(number)))


class Zerocopy(Udp):
    """Packets that stay in the sender's memory."""

    def _set_up(self) -> None:
        super()._set_up()
        self.sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        self._waiting = 0
        self._memory: list[bytes] = []
        """What was sent: a packet that waits reads from it."""

    def _one(self, number: int) -> None:
        to = (self.victim.address, self.port(number))
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
                # The last 16 bytes of struct sock_extended_err's first: from, to.
                for _, _, note in notes:
                    first, last = struct.unpack_from("=8xII", note)
                    self._waiting -= last - first + 1

    def charged(self) -> int:
        """Return the same, and packets whose memory is not given back yet."""
        self._complete()
        # What fails when it was made, and is reported as lost, is told as complete, too.
        return super().charged() + max(self._waiting, 0)


class Multicast(Sender):
    """IPv6 to all nodes of the link."""

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
        self.scope = socket.if_nametoindex(self.victim.out)

    def _one(self, number: int) -> None:
        self.sock.sendto(payload(number), (GROUP, self.port(number), 0, self.scope))


class Packet(Sender):
    """Frames of a packet socket."""

    bypass = False

    def _set_up(self) -> None:
        self.sock = self.socket(socket.AF_PACKET, socket.SOCK_RAW)
        victim = self.victim
        out = victim.out
        if self.bypass:
            self.sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            out = out if victim.netns else NAME
        elif self.row.sender == "xdp":
            out = "up1"
        self.to = (out, 0x0800)
        vlan = VLAN_ID if out == NAME and self.row.neighbour == "vlan" else 0
        source = victim.lab.up1_mac if victim.netns else victim.peer_mac
        self.head = b"" if self.row.kind == "tun" else ethernet(victim.mac, source, vlan)

    def _one(self, number: int) -> None:
        victim = self.victim
        packet = udp(victim.peer, victim.address, number, self.port(number))
        self.sock.sendto(self.head + packet, self.to)


class Bypass(Packet):
    """The same past the qdisc."""

    bypass = True


class Xdp(Packet):
    """Frames that come over a veth, and that XDP redirects there into the device."""

    def __enter__(self) -> Self:
        self.victim.netns = "far"
        self._stack.enter_context(bpf.xdp(LOWER, bpf.redirect(socket.if_nametoindex(NAME))))
        return super().__enter__()


class Icmp(Sender):
    """Requests for an echo that the device's reader writes; the kernel's answers are what is sent.

    Its socket is charged, and what has no room there is never made.
    """

    def _set_up(self) -> None:
        victim = self.victim
        vlan = VLAN_ID if self.row.neighbour == "vlan" and not self.row.above else 0
        head = ethernet(victim.peer_mac, victim.mac, vlan)
        self.head = b"" if self.row.kind == "tun" else head
        if self.row.event in ("down", "netns"):
            # Meanwhile there is no way back; nobody counts an answer that is not made for that.
            self.unsure = MOST

    def _one(self, number: int) -> None:
        victim = self.victim
        request = self.head + echo(victim.address, victim.peer, number)
        os.pwritev(victim.fds[0], [request], -1, os.RWF_NOWAIT)


class Tcp(Sender):
    """A connection whose packets the reader sends back, so that both ends are here."""

    def _set_up(self) -> None:
        victim = self.victim
        self.listener = self.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((victim.peer, TCP_PORT))
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
        self.client.connect_ex((self.victim.address, TCP_PORT))

        def accepted() -> bool:
            with suppress(BlockingIOError):
                self.server = self._stack.enter_context(self.listener.accept()[0])
                self.server.setblocking(False)
                self.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return self.server is not None

        if not wait_until(accepted):
            raise AssertionError("no TCP connection comes about")

    def _one(self, number: int) -> None:
        poll = select.poll()
        poll.register(self.client, select.POLLOUT)
        poll.poll(100)
        # So little of it that it is taken as a whole.
        self.client.send(payload(number))

    def came(self) -> int:
        """Return how many payloads came to the other end."""
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
