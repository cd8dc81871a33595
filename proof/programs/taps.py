# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of macvtap and ipvtap share: sockets in a namespace, and their account."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import harness
from harness import check, drivers, equal, run, soon
from sockets import charged

from lab.guest.drivers import tap_modules
from lab.guest.namespaces import inside
from lab.guest.process import ip_batch, netns_path
from lab.guest.taps.ingress import ADDRESS, GUEST_MAC, NAME, guest_tap
from lab.guest.taps.linktap import LinkTap

MOST = 4080
"""NODROP_HOLD_MOST."""
FAR_TOO_MANY = 50_000
"""Packets that nothing here has room for."""
UDP_SEGMENT = 103
"""As in linux/udp.h."""
UDP_PAYLOAD = 14 + 20 + 8
"""Where it begins in a frame."""
PARAMETERS = Path("/sys/module/tap/parameters")
OTHER, SIBLING = "10.9.0.4", "10.9.0.2"
"""Another guest's address, the senders'."""

LATE_MS = "600000"
"""Later than any test reads: the guard's time where it is not what is tested."""


def use(driver: str) -> None:
    """Load a driver's tap and all that goes with it, unless it is loaded already."""
    drivers.load(tap_modules(driver))
    guard = PARAMETERS / "guard_ms"
    if guard.exists():
        guard.write_text(LATE_MS, encoding="ascii")


def run_taps(*cases: Callable[[], None]) -> None:
    """Run cases with nodrop's tap, unless they say otherwise.

    With NODROP_TAP=stock in the environment it is the kernel's own, to see what it fails.
    """

    def prepared(case: Callable[[], None]) -> Callable[[], None]:
        def with_driver() -> None:
            use(os.environ.get("NODROP_TAP", "nodrop"))
            case()

        with_driver.__name__ = case.__name__
        return with_driver

    run(*map(prepared, cases), tun=None)


def parameter(name: str, value: str) -> AbstractContextManager[None]:
    """Set a parameter of tap, if it has it, for the block."""
    path = PARAMETERS / name
    return harness.parameter(path, value) if path.exists() else nullcontext()


@contextmanager
def sockets(count: int, netns: str, *, connected: bool = True) -> Iterator[list[socket.socket]]:
    """Give non-blocking UDP sockets of a namespace, connected to the tap's address."""
    with ExitStack() as stack:
        with inside(netns_path(netns)):
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
def other_guest() -> Iterator[LinkTap]:
    """Give the tap of another guest; to the senders of ``sib`` it is OTHER."""
    with guest_tap() as tap:
        ip_batch([f"neigh replace {OTHER} lladdr {GUEST_MAC} dev sib0 nud permanent"], netns="sib")
        os.set_blocking(tap.fd, False)
        yield tap


def frames(fd: int) -> Iterator[bytes]:
    """Read what there is."""
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):
        while True:
            yield os.read(fd, 65536)


def drain(fd: int) -> int:
    """Read what there is; return how many frames it were."""
    return sum(1 for _ in frames(fd))


def segmenting(made: Sequence[socket.socket]) -> None:
    """Send large frames from now on, which are to be cut into segments of 100 bytes."""
    for sock in made:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 100)


class Flow:
    """Numbered packets of some sockets, and what of them came.

    Args:
        made: the sockets; a packet tells which one and its number there.
        size: UDP payload, bytes.
    """

    def __init__(self, made: Sequence[socket.socket], *, size: int = 1000) -> None:
        self.sockets = made
        self.sent = [0] * len(made)
        self.came: list[list[int]] = [[] for _ in made]
        self._size = size

    def send_one(self, index: int, address: str = "") -> bool:
        """Send a packet, to an address if the socket is not connected; False: it has to wait."""
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
        """Send by turns until every socket has to wait, or so many are sent."""
        while sum(self.sent) < most:
            if not sum(self.send_one(index) for index in range(len(self.sockets))):
                return
        check(most < FAR_TOO_MANY, "nothing holds the sockets")

    def read(self, fd: int, *, most: int = FAR_TOO_MANY) -> int:
        """Read what there is, or so many; return how many of these packets it were."""
        count = 0
        for frame in frames(fd):
            count += self.add(frame)
            if count == most:
                break
        return count

    def add(self, frame: bytes) -> bool:
        """Note a frame that came; whether it is one of these packets."""
        if frame[23:24] != b"\x11":
            return False
        index, number = struct.unpack_from("!II", frame, UDP_PAYLOAD)
        self.came[index].append(number)
        return True

    def read_all(self, fd: int, wanted: int) -> None:
        """Read until so many came in all."""

        def done() -> bool:
            self.read(fd)
            return self.count() >= wanted

        soon(done, lambda: f"{self.count()} of {wanted} packets came")

    def count(self) -> int:
        """How many came in all."""
        return sum(map(len, self.came))

    def in_order(self) -> None:
        """Fail unless each socket's packets came in their order, none twice."""
        for index, numbers in enumerate(self.came):
            equal(numbers, sorted(set(numbers)), f"order of socket {index}")

    def given_back(self) -> None:
        """Fail unless no socket is charged with anything any more."""

        def rest() -> list[int]:
            return [size for size in map(charged, self.sockets) if size]

        soon(lambda: not rest(), lambda: f"{len(rest())} sockets are charged with {rest()}")


def counters(queue: int = 0) -> dict[str, int]:
    """The counters of a queue."""
    return harness.counters(queue, device=NAME, way="rx")


def drops() -> dict[str, int]:
    """The causes by which the first queue lost something."""
    return {name: value for name, value in counters().items() if name.startswith("drop_") and value}
