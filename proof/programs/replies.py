# SPDX-License-Identifier: GPL-2.0-only
"""Requests to which the kernel itself replies, and how to know its replies."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from guestlib.packets import checksum, ip4, ip6, pseudo, summed

CLOSED = 7
"""A port without a socket."""
ICMP, TCP, UDP, ICMP6 = 1, 6, 17, 58
BEYOND4, BEYOND6 = "198.18.9.2", "fd00:9::2"
"""Behind a link with a smaller MTU."""
DONT_FRAGMENT = 0x4000


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
