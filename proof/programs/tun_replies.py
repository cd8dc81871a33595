#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The kernel replies to others while devices hold replies that their readers do not take.

ndslow0, ndslow1   their readers request replies, and read none
ndother            requests replies from the same CPU, and reads them

The kernel sends its replies from one socket for each CPU and protocol. A few hundred of them use up
its send buffer, if they stay charged to it while they wait.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from harness import DEEP, check, each, equal, one_cpu, packets, run, soon

from guestlib.environment import setting
from guestlib.namespaces import namespaces
from guestlib.netstats import driver_counters, qdisc_counters
from guestlib.packets import checksum, ip4, ip6, pseudo, summed
from guestlib.process import ip_batch
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TUN, TunDevice
from proof.sweep.topology import replace_qdisc

SLOW = ("ndslow0", "ndslow1")
OTHER = "ndother"
MANY = 1000
"""Replies, several times more than a send buffer holds."""
CLOSED = 7
"""A port without a socket."""
ICMP, TCP, UDP, ICMP6 = 1, 6, 17, 58
BEYOND4, BEYOND6 = "198.18.9.2", "fd00:9::2"
"""Behind a link with a smaller MTU."""
DONT_FRAGMENT = 0x4000
SETTINGS = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv4/ip_forward": "1",
    "ipv6/conf/all/forwarding": "1",
    # Errors to one receiver are not rationed.
    "ipv4/icmp_ratemask": "0",
    "ipv6/icmp/ratelimit": "0",
}


class Peer(NamedTuple):
    """A device's reader: its addresses and the kernel's."""

    own4: str
    kernel4: str
    own6: str
    kernel6: str


def peer(number: int) -> Peer:
    at4, at6 = f"198.18.{number}", f"fd00:{number}"
    return Peer(f"{at4}.2", f"{at4}.1", f"{at6}::2", f"{at6}::1")


def echo4(one: Peer, number: int) -> bytes:
    rest = struct.pack("!HH", 1, number) + bytes(1000)
    body = struct.pack("!BBH", 8, 0, checksum(b"\x08\0\0\0" + rest)) + rest
    return ip4(body, ICMP, at=(one.own4, one.kernel4))


def echo6(one: Peer, number: int) -> bytes:
    body = struct.pack("!BBHHH", 128, 0, 0, 1, number) + bytes(1000)
    packet = ip6(body, ICMP6, at=(one.own6, one.kernel6))
    total = checksum(pseudo(packet, ICMP6, len(body)) + body)
    return packet[:42] + struct.pack("!H", total) + packet[44:]


def syn(number: int) -> bytes:
    """Return a TCP header to a closed port, without its checksum."""
    return struct.pack("!HHIIBBHHH", 1024 + number, CLOSED, number, 0, 5 << 4, 2, 1000, 0, 0)


def syn4(one: Peer, number: int) -> bytes:
    return summed(ip4(syn(number), TCP, at=(one.own4, one.kernel4)), TCP)


def syn6(one: Peer, number: int) -> bytes:
    return summed(ip6(syn(number), TCP, at=(one.own6, one.kernel6)), TCP)


def closed4(one: Peer, number: int) -> bytes:
    """Return a datagram to a closed port."""
    body = struct.pack("!HHHH", 1024 + number, CLOSED, 808, 0) + bytes(800)
    return ip4(body, UDP, at=(one.own4, one.kernel4))


def big4(one: Peer, number: int) -> bytes:
    """Return a packet that is too large for the link behind the kernel."""
    body = struct.pack("!HHHH", 1024 + number, CLOSED, 1408, 0) + bytes(1400)
    return ip4(body, UDP, fragment=DONT_FRAGMENT, at=(one.own4, BEYOND4))


def big6(one: Peer, number: int) -> bytes:
    body = struct.pack("!HHHH", 1024 + number, CLOSED, 1408, 1) + bytes(1400)
    return ip6(body, UDP, at=(one.own6, BEYOND6))


def icmp(kind: int) -> Callable[[bytes], bool]:
    return lambda packet: packet[0] == 0x45 and packet[9] == ICMP and packet[20] == kind


def icmp6(kind: int) -> Callable[[bytes], bool]:
    return lambda packet: packet[0] >> 4 == 6 and packet[6] == ICMP6 and packet[40] == kind


def reset4(packet: bytes) -> bool:
    return packet[0] == 0x45 and packet[9] == TCP and bool(packet[33] & 4)


def reset6(packet: bytes) -> bool:
    return packet[0] >> 4 == 6 and packet[6] == TCP and bool(packet[53] & 4)


Request = Callable[[Peer, int], bytes]
REPLIES: dict[str, tuple[Request, Callable[[bytes], bool]]] = {
    "echo": (echo4, icmp(0)),
    "echo6": (echo6, icmp6(129)),
    "reset": (syn4, reset4),
    "reset6": (syn6, reset6),
    "unreachable": (closed4, icmp(3)),
    "too_big": (big4, icmp(3)),
    "too_big6": (big6, icmp6(2)),
}
"""By name: a request, and the test for its reply."""


@contextmanager
def device(name: str, number: int, qdisc: str, netns: str | None = None) -> Iterator[TunDevice]:
    """Create a TUN device with a ring of 5 slots, with the addresses of peer(number)."""
    one = peer(number)
    flags = IFF_TUN | (IFF_MULTI_QUEUE if qdisc == "mq" else 0)
    with TunDevice(name, flags) as made:
        if netns:
            ip_batch([f"link set dev {name} netns {netns}"])
        else:
            replace_qdisc(name, qdisc)
        ip_batch(
            [
                f"link set dev {name} txqueuelen 5",
                f"address add {one.kernel4} peer {one.own4} dev {name}",
                f"address add {one.kernel6}/64 dev {name} nodad",
                f"link set dev {name} up",
            ],
            netns=netns,
        )
        os.set_blocking(made.fd, False)
        yield made


@contextmanager
def narrow_link() -> Iterator[None]:
    """Create a route to BEYOND whose MTU is small."""
    ip_batch(["link add ndnarrow type dummy", "link set dev ndnarrow up"])
    try:
        ip_batch([f"route add {at} dev ndnarrow mtu 1280" for at in (BEYOND4, BEYOND6)])
        yield
    finally:
        ip_batch(["link delete dev ndnarrow"])


def serve_others(kinds: Iterable[str], qdisc: str, netns: str | None = None) -> None:
    """Have the slow devices request many replies, and the other device one after another."""
    with ExitStack() as stack:
        for name, value in SETTINGS.items():
            stack.enter_context(setting(Path("/proc/sys/net", name), value))
        stack.enter_context(narrow_link())
        stack.enter_context(one_cpu())
        slow = [
            stack.enter_context(device(name, 10 + at, qdisc, netns)) for at, name in enumerate(SLOW)
        ]
        other = stack.enter_context(device(OTHER, 20, DEEP))
        for kind in kinds:
            request, is_reply = REPLIES[kind]
            for number in range(MANY):
                for at, made in enumerate(slow):
                    os.write(made.fd, request(peer(10 + at), number))
            for number in range(20):
                os.write(other.fd, request(peer(20), number))
                soon(
                    lambda is_reply=is_reply: any(map(is_reply, packets(other.fd))),
                    lambda kind=kind, number=number: f"{kind}: no reply after {number} of 20",
                )
        for name in SLOW:
            found = driver_counters(name, netns=netns)
            check(found["tx0_stops"] > 0, f"{name} was never stopped")
            equal(found["tx0_guard_trips"], 0, "guard trips")
            waiting = qdisc_counters(name, netns=netns).queued
            check(waiting > 0, f"no reply waits in the qdisc of {name}")


def case_all_kinds() -> None:
    serve_others(REPLIES, "pfifo limit 20000")


@each("fq_codel", "cake", "htb", "mq")
def case_qdisc(qdisc: str) -> None:
    serve_others(("echo", "reset"), qdisc)


def case_another_namespace() -> None:
    """All network namespaces share the sockets, and a device may move to another one."""
    with namespaces("ndslow"):
        serve_others(("echo", "reset"), "fq_codel", "ndslow")


run()
