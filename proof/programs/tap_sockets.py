# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the tests of macvtap and ipvtap: sockets in a namespace, and their packets."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import devices
from harness import check, drivers, equal, run, soon
from traffic import packets

from guestlib.drivers import tap_modules
from guestlib.environment import setting
from guestlib.namespaces import inside
from guestlib.process import ip_batch
from guestlib.sockets import UDP_SEGMENT, charged
from guestlib.taps import ADDRESS, GUEST_MAC, NAME, SENDERS, LinkTap, guest_tap, topology

MOST = 4080
"""NODROP_HOLD_MOST."""
FAR_TOO_MANY = 50_000
"""More packets than all rings and send buffers take."""
UDP_PAYLOAD = 14 + 20 + 8
"""Offset of the UDP payload in a frame, bytes."""
PARAMETERS = Path("/sys/module/tap/parameters")
OTHER, SIBLING = "10.9.0.4", "10.9.0.2"
"""Addresses of another guest, and of the senders."""


def run_taps() -> None:
    """Run the program's cases with nodrop's tap.

    LAB_TAP=stock in the environment selects the stock one, to see which cases it fails.
    """
    run(load=lambda: drivers.load(tap_modules(os.environ.get("LAB_TAP", "nodrop"))))


def parameter(name: str, value: str) -> AbstractContextManager[None]:
    """Set a parameter of tap for the block, if the module has it."""
    path = PARAMETERS / name
    return setting(path, value) if path.exists() else nullcontext()


@contextmanager
def sockets(count: int, netns: str, *, connected: bool = True) -> Iterator[list[socket.socket]]:
    """Open non-blocking UDP sockets in a namespace for the block; connect them to the tap."""
    with ExitStack() as stack:
        with inside(netns):
            made = [
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                for _ in range(count)
            ]
        for sock in made:
            sock.setblocking(False)
            if connected:
                sock.connect((ADDRESS, 9))
        yield made


@contextmanager
def flows(
    *counts: int, path: str = "sibling", ring: int = 0, size: int = 1000, guard_ms: str = ""
) -> Iterator[tuple[LinkTap, list[TapFlow]]]:
    """Create an ingress path for the block; yield its tap, and flows of so many sockets.

    Args:
        path: one of taps.SENDERS.
        ring: the tap's txqueuelen, slots; 0: the kernel's default.
        size: of the flows, as for TapFlow.
        guard_ms: tap's parameter, if it is not to change.
    """
    with ExitStack() as stack:
        if guard_ms:
            stack.enter_context(parameter("guard_ms", guard_ms))
        tap = stack.enter_context(topology(path, ring=ring))
        made = [stack.enter_context(sockets(count, SENDERS[path])) for count in counts]
        yield tap, [TapFlow(some, size=size) for some in made]


@contextmanager
def other_guest() -> Iterator[LinkTap]:
    """Create another guest's tap for the block; senders in ``sib`` reach it as OTHER."""
    with guest_tap() as tap:
        ip_batch([f"neigh replace {OTHER} lladdr {GUEST_MAC} dev sib0 nud permanent"], netns="sib")
        os.set_blocking(tap.fd, False)
        yield tap


def drain(fd: int) -> int:
    """Read all queued frames; return their number."""
    return sum(1 for _ in packets(fd))


def segmenting(made: Sequence[socket.socket]) -> None:
    """Make sockets send GSO packets with segments of 100 bytes."""
    for sock in made:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 100)


class TapFlow:
    """Numbered packets of several sockets, sent and received.

    Args:
        made: the sockets; a packet contains its socket's index and its number there.
        size: UDP payload, bytes.
    """

    def __init__(self, made: Sequence[socket.socket], *, size: int = 1000) -> None:
        self.sockets = made
        self.sent = [0] * len(made)
        self.came: list[list[int]] = [[] for _ in made]
        self._size = size

    def send_one(self, index: int, address: str = "") -> bool:
        """Send a packet, to an address if the socket is not connected; False: it would block."""
        mark = struct.pack("!II", index, self.sent[index])
        try:
            packet = mark + bytes(self._size - len(mark))
            if address:
                self.sockets[index].sendto(packet, (address, 9))
            else:
                self.sockets[index].send(packet)
        except BlockingIOError:
            return False
        self.sent[index] += 1
        return True

    def fill(self, *, most: int = FAR_TOO_MANY) -> None:
        """Send from all sockets in turn until each would block, or ``most`` packets are sent."""
        while sum(self.sent) < most:
            if not sum(self.send_one(index) for index in range(len(self.sockets))):
                return
        check(most < FAR_TOO_MANY, "no backpressure: the sockets do not block")

    def read(self, fd: int, *, most: int = FAR_TOO_MANY) -> int:
        """Read all queued frames, or until ``most`` are of this flow; return how many are."""
        count = 0
        for frame in packets(fd):
            count += self.add(frame)
            if count == most:
                break
        return count

    def add(self, frame: bytes) -> bool:
        """Record a frame; return whether it belongs to this flow."""
        if frame[23:24] != b"\x11":
            return False
        index, number = struct.unpack_from("!II", frame, UDP_PAYLOAD)
        self.came[index].append(number)
        return True

    def read_all(self, fd: int, wanted: int) -> None:
        """Read until ``wanted`` packets have arrived in all."""

        def done() -> bool:
            self.read(fd)
            return self.count() >= wanted

        soon(done, lambda: f"{self.count()} of {wanted} packets arrived")

    def count(self) -> int:
        return sum(map(len, self.came))

    def in_order(self) -> None:
        """Fail unless each socket's packets arrived in order, none twice."""
        for index, numbers in enumerate(self.came):
            equal(numbers, sorted(set(numbers)), f"order of socket {index}")

    def uncharged(self) -> None:
        """Fail unless no bytes stay charged to the sockets."""

        def rest() -> list[int]:
            return [size for size in map(charged, self.sockets) if size]

        soon(lambda: not rest(), lambda: f"{len(rest())} sockets stay charged: {rest()}")


def counters(queue: int = 0) -> dict[str, int]:
    return devices.counters(queue, device=NAME)


def drops() -> dict[str, int]:
    """Return the first queue's nonzero drop counters."""
    return {name: value for name, value in counters().items() if name.startswith("drop_") and value}
