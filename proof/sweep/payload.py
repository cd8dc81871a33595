# SPDX-License-Identifier: GPL-2.0-only
"""Test packets: a magic, a number, and bytes that depend on the number; and their headers."""

from __future__ import annotations

import struct

from guestlib.packets import checksum, ip4

MAGIC = b"ndSw"
_NUMBER = struct.Struct("!I")
_FILLS = tuple(bytes(((number + at) & 0xFF) for at in range(24)) for number in range(256))
SIZE = len(MAGIC) + _NUMBER.size + len(_FILLS[0])
"""Payload length, bytes; it fits a route's MTU of 68."""
PORT, TCP_PORT = 9, 5000
TCP, ICMP, UDP = 6, 1, 17


def payload(number: int) -> bytes:
    return MAGIC + _NUMBER.pack(number) + _FILLS[number & 0xFF]


def number_of(data: bytes, at: int) -> int:
    """Return the number of the packet whose magic is at an offset."""
    return int(_NUMBER.unpack_from(data, at + len(MAGIC))[0]) & 0xFFFF


def right(data: bytes, at: int) -> bool:
    return data[at : at + SIZE] == payload(number_of(data, at))


def udp(source: str, to: str, number: int, port: int = PORT) -> bytes:
    """Return a test packet in UDP, without a checksum."""
    contents = payload(number)
    head = struct.pack("!HHHH", PORT, port, 8 + len(contents), 0)
    return ip4(head + contents, UDP, at=(source, to))


def echo(source: str, to: str, number: int) -> bytes:
    """Return an echo request with a test packet."""
    rest = struct.pack("!HH", 1, number & 0xFFFF) + payload(number)
    head = struct.pack("!BBH", 8, 0, 0)
    contents = struct.pack("!BBH", 8, 0, checksum(head + rest)) + rest
    return ip4(contents, ICMP, at=(source, to))


def ethernet(to: bytes, source: bytes, vlan: int = 0) -> bytes:
    """Return the Ethernet header for an IPv4 packet, with a tag unless ``vlan`` is 0."""
    tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
    return to + source + tag + b"\x08\0"


def swapped(packet: bytes, skip: int) -> bytes:
    """Swap the addresses of a TCP packet; return "" for other packets.

    Args:
        skip: length of the Ethernet header without a VLAN tag, bytes.
    """
    at = skip + 4 if skip and packet[12:14] == b"\x81\0" else skip
    if len(packet) < at + 40 or packet[at] != 0x45 or packet[at + 9] != TCP:
        return b""
    link = packet[6:12] + packet[:6] + packet[12:at] if skip else b""
    addresses = packet[at + 16 : at + 20] + packet[at + 12 : at + 16]
    return link + packet[at : at + 12] + addresses + packet[at + 20 :]
