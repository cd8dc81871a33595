# SPDX-License-Identifier: GPL-2.0-only
"""Raw IP packets to send, and their checksums."""

from __future__ import annotations

import socket
import struct

TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP
IDENT = 0x1234
"""ID of the IPv4 packets: fixed, so that the kernel chooses none."""


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


def udp(count: int) -> bytes:
    """Return a UDP datagram with ``count`` bytes of payload and no checksum."""
    return struct.pack("!4H", 1000, 9, 8 + count, 0) + payload(count)


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
