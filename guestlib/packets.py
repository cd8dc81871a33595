# SPDX-License-Identifier: GPL-2.0-only
"""Raw packets to send: headers, checksums, and payloads with a number.

A numbered payload has a magic, a number, and bytes that depend on the number.
"""

from __future__ import annotations

import socket
import struct

TCP, UDP, ICMP = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP
IDENT = 0x1234
"""ID of the IPv4 packets: fixed, so that the kernel chooses none."""

MAGIC = b"ndSw"
_NUMBER = struct.Struct("!I")
_FILLS = tuple(bytes(((number + at) & 0xFF) for at in range(24)) for number in range(256))
SIZE = len(MAGIC) + _NUMBER.size + len(_FILLS[0])
"""Length of a numbered payload, bytes; it fits a route's MTU of 68."""
PORT, TCP_PORT = 9, 5000


def checksum(data: bytes) -> int:
    """Return the internet checksum of bytes, RFC 1071."""
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def payload(count: int) -> bytes:
    """Return ``count`` bytes, each different from its neighbours."""
    return bytes((7 * at + 3) & 0xFF for at in range(count))


def ip4(
    data: bytes,
    proto: int = UDP,
    tos: int = 0,
    ttl: int = 64,
    fragment: int = 0,
    *,
    at: tuple[str, str],
) -> bytes:
    """Return an IPv4 packet.

    Args:
        fragment: the field with IP_DF (0x4000) and IP_MF (0x2000).
        at: source and destination.
    """
    fields = (0x45, tos, 20 + len(data), IDENT, fragment, ttl, proto, 0)
    head = struct.pack("!BBHHHBBH4s4s", *fields, *map(socket.inet_aton, at))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + data


def ip6(
    data: bytes,
    proto: int = UDP,
    tclass: int = 0,
    ttl: int = 64,
    label: int = 0,
    *,
    at: tuple[str, str],
) -> bytes:
    """Return an IPv6 packet; ``at``: source and destination."""
    head = struct.pack("!IHBB", 6 << 28 | tclass << 20 | label, len(data), proto, ttl)
    return head + b"".join(socket.inet_pton(socket.AF_INET6, address) for address in at) + data


def udp(count: int, sport: int = 1000) -> bytes:
    """Return a UDP datagram with ``count`` bytes of payload and no checksum."""
    return struct.pack("!4H", sport, 9, 8 + count, 0) + payload(count)


def pseudo(packet: bytes, proto: int, count: int) -> bytes:
    """Return the pseudo header for the payload of an IP packet."""
    if packet[0] >> 4 == 4:
        return packet[12:20] + struct.pack("!HH", proto, count)
    return packet[8:40] + struct.pack("!II", count, proto)


def summed(packet: bytes, proto: int = UDP, *, partial: bool = False) -> bytes:
    """Fill in the checksum of UDP or TCP in an IP packet without options.

    Args:
        partial: of the pseudo header only.
    """
    at = 20 if packet[0] >> 4 == 4 else 40
    offset = at + (6 if proto == UDP else 16)
    header = pseudo(packet, proto, len(packet) - at)
    value = checksum(header) ^ 0xFFFF if partial else checksum(header + packet[at:])
    return packet[:offset] + struct.pack("!H", value) + packet[offset + 2 :]


def numbered(number: int) -> bytes:
    return MAGIC + _NUMBER.pack(number) + _FILLS[number & 0xFF]


def number_of(data: bytes, at: int) -> int:
    """Return the number of the packet whose magic is at an offset."""
    return int(_NUMBER.unpack_from(data, at + len(MAGIC))[0]) & 0xFFFF


def right(data: bytes, at: int) -> bool:
    return data[at : at + SIZE] == numbered(number_of(data, at))


def numbered_udp(source: str, to: str, number: int, port: int = PORT) -> bytes:
    """Return a test packet in UDP, without a checksum."""
    contents = numbered(number)
    head = struct.pack("!HHHH", PORT, port, 8 + len(contents), 0)
    return ip4(head + contents, UDP, at=(source, to))


def numbered_echo(source: str, to: str, number: int) -> bytes:
    """Return an echo request with a test packet."""
    rest = struct.pack("!HH", 1, number & 0xFFFF) + numbered(number)
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
