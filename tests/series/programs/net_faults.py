#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The faults of the stock kernel that series/fixes fixes; each case fails without its patch.

A tap's frames keep their sender's charge on a bridge, so a device with a slow qdisc keeps it, too:

    ndguest --- ndbridge --- ndveth0 (tbf) --- ndveth1
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "proof/programs"))

from devices import DEEP, bridge, veth
from harness import check, drivers, each, equal, run, soon
from replies import REPLIES, peer
from traffic import one_cpu, packets

from guestlib.drivers import tap_modules
from guestlib.environment import GuestError, setting, time_limit
from guestlib.netstats import qdisc_counters
from guestlib.packets import ethernet
from guestlib.process import ip_batch, tool
from guestlib.sockets import PACKET_QDISC_BYPASS, SOL_PACKET, charged
from guestlib.taps import MAC, frame, guest_tap, topology
from guestlib.tundev import IFF_TAP, IFF_TUN, TUNSETSNDBUF, TunDevice, configure

GUEST = "ndguest"
FAR = "02:00:00:00:00:0c"
"""An address behind ndveth1."""
SLOW, OTHER = "ndslow", "ndother"
SNDBUF = 100_000
FRAMES = 500
"""Several times more than SNDBUF takes."""
BRISK = "tbf rate 8mbit burst 10000 limit 10000000"
STUCK = "tbf rate 800bit burst 10000 limit 10000000"
"""A packet of 1000 bytes takes ten seconds."""
MANY = 1000
"""Replies, several times more than a send buffer holds."""
SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "0",
    # Errors to one receiver are not rationed.
    "ipv4/icmp_ratemask": "0",
    "ipv6/icmp/ratelimit": "0",
}
REFERENCES = Path("/sys/module/tap/refcnt")


class Writer:
    """Write packets to a file in a thread, as fast as they are taken.

    Attributes:
        written: how many were.
        error: the errno of a write() that failed, or 0.
    """

    def __init__(self, fd: int, count: int, packet: Callable[[int], bytes]) -> None:
        self.written = 0
        self.error = 0
        self._fd = fd
        self._count = count
        self._packet = packet
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for number in range(self._count):
                os.write(self._fd, self._packet(number))
                self.written += 1
        except OSError as error:
            self.error = error.errno or -1

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def is_blocked(self) -> bool:
        """Return whether it writes no packet for a time, but has not ended."""
        before = self.written
        self._thread.join(0.3)  # bound: it should not end
        return not self.ended() and self.written == before


@contextmanager
def bridged(qdisc: str) -> Iterator[TunDevice]:
    """Create a guest's tap with a send buffer, bridged to a device with a qdisc."""
    with TunDevice(GUEST, IFF_TAP) as made, veth("ndveth1"):
        fcntl.ioctl(made.fd, TUNSETSNDBUF, struct.pack("i", SNDBUF))
        tool(["tc", "qdisc", "replace", "dev", "ndveth0", "root", *qdisc.split()])
        with bridge(GUEST, "ndveth0", behind={"ndveth0": FAR}):
            yield made


def to_far(_number: int) -> bytes:
    return ethernet(bytes.fromhex(FAR.replace(":", "")), b"\x02\0\0\0\0\x0a") + bytes(1000)


def deleted(name: str) -> threading.Thread:
    """Delete a device in a thread: it ends when nothing uses the device any more."""

    def delete() -> None:
        # On a kernel with the fault, ip is stopped.
        with suppress(GuestError):
            ip_batch([f"link delete dev {name}"])

    thread = threading.Thread(target=delete, daemon=True)
    thread.start()
    return thread


def case_tun_write() -> None:
    """A write() that waits for space in the send buffer returns when there is some."""
    with bridged(BRISK) as made:
        writer = Writer(made.fd, FRAMES, to_far)
        soon(writer.ended, lambda: f"the writer sleeps after {writer.written} packets")
        equal(writer.written, FRAMES, "packets written")


def case_tap_write() -> None:
    """The same for a macvtap, whose frames wait in another one's ring."""
    with topology("guest") as reader, guest_tap(sndbuf=20_000) as made:
        os.set_blocking(made.fd, True)
        writer = Writer(made.fd, 40, lambda number: frame(number, 1000))
        soon(writer.is_blocked, "the writer is not blocked")

        def ended() -> bool:
            for _ in packets(reader.fd):
                pass
            return writer.ended()

        soon(ended, lambda: f"the writer sleeps after {writer.written} packets")
        equal(writer.written, 40, "packets written")


def case_tun_delete() -> None:
    """Deleting the device ends a write() that waits; the device would wait for the write()."""
    with bridged(STUCK) as made:
        writer = Writer(made.fd, FRAMES, to_far)
        soon(writer.is_blocked, "the writer is not blocked")
        deletion = deleted(GUEST)
        soon(writer.ended, "the writer sleeps although its device is gone")
        equal(writer.error, errno.EPIPE, "errno")
        deletion.join(time_limit(10))
        check(not deletion.is_alive(), "the device is not deleted")


def case_tap_rings() -> None:
    """Two guests end while each one's ring has frames of the other's socket."""
    before = int(REFERENCES.read_text())
    with topology("guest") as tap, guest_tap() as other:
        there = frame(1, 1000)
        back = there[6:12] + bytes.fromhex(MAC.replace(":", "")) + there[12:]
        for _ in range(20):
            os.write(other.fd, there)
            os.write(tap.fd, back)
    soon(lambda: int(REFERENCES.read_text()) == before, "two sockets and their frames are leaked")


def case_packet_delete() -> None:
    """A packet socket waits for space in its send buffer while its device goes.

    The space is taken by packets in the qdisc of another device.
    """
    ip_batch([f"link add {name} type dummy" for name in (SLOW, OTHER)])
    tool(["tc", "qdisc", "replace", "dev", SLOW, "root", *STUCK.split()])
    ip_batch([f"link set dev {name} up" for name in (SLOW, OTHER)])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
        try:
            for number in range(100):
                sock.sendto(to_far(number), (SLOW, 0x0800))
            check(False, "the send buffer does not fill")
        except BlockingIOError:
            check(charged(sock) > 0, "the socket is not charged")
        sock.setblocking(True)
        sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        ended: list[int] = []

        def send() -> None:
            try:
                sock.sendto(to_far(0), (OTHER, 0x0800))
                ended.append(0)
            except OSError as error:
                ended.append(error.errno or -1)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        sender.join(0.5)  # bound: it should not end
        check(sender.is_alive(), "the sender does not wait")
        deletion = deleted(OTHER)
        soon(lambda: not Path("/sys/class/net", OTHER).exists(), "the device stays")
        # Now it has no queues; the sender is the last one that uses it.
        check(sender.is_alive(), f"the sender did not wait: {ended}")
        ip_batch([f"link delete dev {SLOW}"])
        soon(lambda: bool(ended), "the sender is not woken")
        equal(ended, [errno.ENOBUFS], "errno")
        deletion.join(time_limit(10))
        check(not deletion.is_alive(), "the device is not deleted")


@contextmanager
def host(name: str, number: int, qdisc: str) -> Iterator[TunDevice]:
    """Create a TUN device with the addresses of peer(number)."""
    one = peer(number)
    with TunDevice(name, IFF_TUN) as made:
        configure(name, txqueuelen=500, qdisc=qdisc)
        ip_batch(
            [
                f"address add {one.kernel4} peer {one.own4} dev {name}",
                f"address add {one.kernel6}/64 dev {name} nodad",
            ]
        )
        os.set_blocking(made.fd, False)
        yield made


@each("echo", "echo6", "reset")
def case_replies(kind: str) -> None:
    """The kernel replies to a host while replies to another one wait in a slow device's qdisc."""
    request, is_reply = REPLIES[kind]
    with ExitStack() as stack:
        for name, value in SETTINGS.items():
            stack.enter_context(setting(Path("/proc/sys/net", name), value))
        stack.enter_context(one_cpu())
        slow = stack.enter_context(host(SLOW, 10, STUCK))
        other = stack.enter_context(host(OTHER, 20, DEEP))
        for number in range(MANY):
            os.write(slow.fd, request(peer(10), number))
        waiting = qdisc_counters(SLOW).queued
        check(waiting > 10, f"only {waiting} replies wait")
        for number in range(20):
            os.write(other.fd, request(peer(20), number))
            soon(
                lambda: any(map(is_reply, packets(other.fd))),
                lambda number=number: f"no reply after {number} of 20; {waiting} others wait",
            )


run(load=lambda: drivers.load(tap_modules("stock")))
