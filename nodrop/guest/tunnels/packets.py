# SPDX-License-Identifier: GPL-2.0-only
"""The packets that are put into a tunnel: for each kind one list, the same on every kernel."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from nodrop.guest.tunnels.kinds import INNER4, INNER6, IPV4, IPV6, MAC, Kind, checksum

OWN4, OWN6 = "198.18.5.1", "fd00:5::1"
"""The near end's addresses in the tunnel."""
OWN_MAC = bytes.fromhex("020000000501")
IDENT = 0x1234
"""IPv4 ID of what is put in: no kernel chooses it."""
SEGMENT = 1000
"""Bytes of payload of a segment."""
UDP, TCP, ICMP, ICMPV6 = 17, 6, 1, 58
NEEDS_CSUM = 1
GSO_TCPV4, GSO_TCPV6, GSO_UDP, GSO_ECN = 1, 4, 5, 0x80
_VNET = struct.Struct("=BBHHHH")


@dataclass(frozen=True)
class Vnet:
    """What ``struct virtio_net_hdr`` says of a packet; offsets count from its first byte."""

    flags: int = 0
    gso_type: int = 0
    header: int = 0
    gso_size: int = 0
    start: int = 0
    offset: int = 0

    def pack(self) -> bytes:
        """Return the header as a packet socket has it."""
        return _VNET.pack(
            self.flags, self.gso_type, self.header, self.gso_size, self.start, self.offset
        )

    @staticmethod
    def unpack(data: bytes) -> Vnet:
        """Read one from the beginning of what a packet socket gave."""
        return Vnet(*_VNET.unpack_from(data))


VNET_BYTES = _VNET.size


@dataclass(frozen=True)
class Shot:
    """A packet to put into a tunnel's device.

    Attributes:
        data: from its link header on, or from its network header where the device has none.
        protocol: ethertype of what it carries.
    """

    name: str
    data: bytes
    protocol: int
    vnet: Vnet = Vnet()


def payload(count: int) -> bytes:
    """Return bytes that differ from their neighbours."""
    return bytes((7 * at + 3) & 0xFF for at in range(count))


def ip4(
    data: bytes,
    proto: int = UDP,
    *,
    tos: int = 0,
    ttl: int = 64,
    fragment: int = 0,
    options: bytes = b"",
    source: str = OWN4,
    target: str = INNER4,
) -> bytes:
    """Return an IPv4 packet; ``fragment`` is the field with IP_DF (0x4000) and IP_MF (0x2000)."""
    size = 20 + len(options)
    head = struct.pack(
        "!BBHHHBBH4s4s",
        *(0x40 | size // 4, tos, size + len(data), IDENT, fragment, ttl, proto, 0),
        *(socket.inet_aton(source), socket.inet_aton(target)),
    )
    head += options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + data


def ip6(
    data: bytes,
    proto: int = UDP,
    *,
    tclass: int = 0,
    label: int = 0,
    ttl: int = 64,
    source: str = OWN6,
    target: str = INNER6,
) -> bytes:
    """Return an IPv6 packet."""
    first = 6 << 28 | tclass << 20 | label
    addresses = (socket.inet_pton(socket.AF_INET6, one) for one in (source, target))
    return struct.pack("!IHBB", first, len(data), proto, ttl) + b"".join(addresses) + data


def pseudo(packet: bytes, proto: int, count: int) -> bytes:
    """Return the pseudo header of what an IP packet carries, without a checksum."""
    if packet[0] >> 4 == 4:
        return packet[12:20] + struct.pack("!HH", proto, count)
    return packet[8:40] + struct.pack("!II", count, proto)


def udp(count: int, source: int = 1000, target: int = 9) -> bytes:
    """Return a UDP datagram of so many bytes of payload, with no checksum."""
    return struct.pack("!4H", source, target, 8 + count, 0) + payload(count)


def tcp(count: int, flags: int = 0x18) -> bytes:
    """Return a TCP segment with a timestamp option and no checksum."""
    head = struct.pack("!HHIIBBHHH", 2000, 5001, 100, 200, 8 << 4, flags, 500, 0, 0)
    return head + b"\x01\x01\x08\x0a" + struct.pack("!II", 11, 22) + payload(count)


def summed(packet: bytes, at: int, where: int, proto: int, *, partial: bool = False) -> bytes:
    """Fill in the checksum of what an IP packet carries.

    Args:
        at: where the UDP or TCP header begins.
        where: of the checksum in it.
        partial: of the pseudo header only.
    """
    data = packet[at:]
    over = pseudo(packet, proto, len(data))
    value = checksum(over) ^ 0xFFFF if partial else checksum(over + data)
    return packet[: at + where] + struct.pack("!H", value) + packet[at + where + 2 :]


def _framed(kind: Kind, name: str, packet: bytes, vnet: Vnet = Vnet()) -> Shot:
    protocol = IPV4 if packet[0] >> 4 == 4 else IPV6
    if not kind.ethernet:
        return Shot(name, packet, protocol, vnet)
    link = MAC + OWN_MAC + struct.pack("!H", protocol)
    size = len(link)
    if vnet.flags:
        vnet = Vnet(
            vnet.flags,
            vnet.gso_type,
            vnet.header + size if vnet.header else 0,
            vnet.gso_size,
            vnet.start + size,
            vnet.offset,
        )
    return Shot(name, link + packet, protocol, vnet)


def _ipv4(kind: Kind, mtu: int) -> Iterator[Shot]:
    for size in (28, 29, 64, 577, 1380, mtu - 1, mtu):
        yield _framed(kind, f"4 size {size}", ip4(udp(size - 28)))
        yield _framed(kind, f"4 df size {size}", ip4(udp(size - 28), fragment=0x4000))
    for tos in (0x01, 0x02, 0x03, 0x10, 0xB8, 0xBB, 0xFF):
        yield _framed(kind, f"4 tos {tos:#x}", ip4(udp(64), tos=tos))
    for ttl in (1, 2, 128, 255):
        yield _framed(kind, f"4 ttl {ttl}", ip4(udp(64), ttl=ttl, fragment=0x4000))
    yield _framed(kind, "4 record route", ip4(udp(64), options=b"\x07\x07\x04\0\0\0\0\0"))
    yield _framed(kind, "4 router alert", ip4(udp(64), options=b"\x94\x04\0\0"))
    yield _framed(kind, "4 first fragment", ip4(udp(192), fragment=0x2000))
    yield _framed(kind, "4 last fragment", ip4(payload(100), fragment=25))
    yield _framed(kind, "4 icmp", ip4(b"\x08\0" + bytes(6) + payload(40), ICMP))
    yield _framed(kind, "4 unknown protocol", ip4(payload(40), 253))
    packet = ip4(udp(100))
    yield _framed(kind, "4 checksum", summed(packet, 20, 6, UDP))
    vnet = Vnet(NEEDS_CSUM, 0, 0, 0, 20, 6)
    yield _framed(kind, "4 partial checksum", summed(packet, 20, 6, UDP, partial=True), vnet)
    for fragment, flags in ((0x4000, 0x18), (0, 0x18), (0x4000, 0x98)):
        packet = ip4(tcp(3 * SEGMENT - 100, flags), TCP, fragment=fragment)
        gso = GSO_TCPV4 | (GSO_ECN if flags & 0x80 else 0)
        vnet = Vnet(NEEDS_CSUM, gso, 52, SEGMENT, 20, 16)
        packet = summed(packet, 20, 16, TCP, partial=True)
        yield _framed(kind, f"4 tcp segments {fragment:#x} {flags:#x}", packet, vnet)
    packet = summed(ip4(udp(2 * SEGMENT + 1)), 20, 6, UDP, partial=True)
    yield _framed(kind, "4 udp segments", packet, Vnet(NEEDS_CSUM, GSO_UDP, 28, SEGMENT, 20, 6))


def _ipv6(kind: Kind, mtu: int) -> Iterator[Shot]:
    for size in (48, 49, 64, 1280, 1380, mtu - 1, mtu):
        yield _framed(kind, f"6 size {size}", summed(ip6(udp(size - 48)), 40, 6, UDP))
    for tclass in (0x01, 0x02, 0x03, 0xB8, 0xFF):
        yield _framed(kind, f"6 class {tclass:#x}", ip6(udp(64), tclass=tclass))
    for ttl in (1, 2, 255):
        yield _framed(kind, f"6 hops {ttl}", ip6(udp(64), ttl=ttl))
    yield _framed(kind, "6 label", ip6(udp(64), label=0x12345))
    yield _framed(kind, "6 no checksum", ip6(udp(64)))
    options = bytes((UDP, 0, 1, 4, 0, 0, 0, 0))
    yield _framed(kind, "6 hop by hop", ip6(options + udp(64), 0))
    yield _framed(kind, "6 destination options", ip6(options + udp(64), 60))
    yield _framed(kind, "6 limit reached", ip6(bytes((UDP, 0, 4, 1, 0, 1, 0, 0)) + udp(64), 60))
    yield _framed(kind, "6 fragment", ip6(bytes((UDP, 0, 0, 1, 0, 0, 0, 9)) + udp(192), 44))
    yield _framed(kind, "6 echo", ip6(b"\x80\0" + bytes(6) + payload(40), ICMPV6))
    packet = summed(ip6(udp(100)), 40, 6, UDP, partial=True)
    yield _framed(kind, "6 partial checksum", packet, Vnet(NEEDS_CSUM, 0, 0, 0, 40, 6))
    packet = summed(ip6(tcp(3 * SEGMENT - 100), TCP), 40, 16, TCP, partial=True)
    vnet = Vnet(NEEDS_CSUM, GSO_TCPV6, 72, SEGMENT, 40, 16)
    yield _framed(kind, "6 tcp segments", packet, vnet)
    packet = summed(ip6(udp(2 * SEGMENT + 1)), 40, 6, UDP, partial=True)
    yield _framed(kind, "6 udp segments", packet, Vnet(NEEDS_CSUM, GSO_UDP, 48, SEGMENT, 40, 6))


def _odd(kind: Kind) -> Iterator[Shot]:
    """What a tunnel may refuse."""
    if kind.ethernet:
        for name, target in (
            ("broadcast", bytes((255,)) * 6),
            ("group", bytes((1, 0, 0x5E, 0, 0, 9))),
        ):
            yield Shot(name, target + OWN_MAC + b"\x08\0" + ip4(udp(64)), IPV4)
        arp = struct.pack("!HHBBH", 1, IPV4, 6, 4, 1) + OWN_MAC + socket.inet_aton(OWN4)
        arp += bytes(6) + socket.inet_aton(INNER4)
        yield Shot("arp", bytes((255,)) * 6 + OWN_MAC + b"\x08\x06" + arp, 0x0806)
        tagged = MAC + OWN_MAC + b"\x81\0\0\x05\x08\0" + ip4(udp(64), tos=0xB8)
        yield Shot("vlan", tagged, 0x8100)
        yield Shot("unknown ethertype", MAC + OWN_MAC + b"\x88\xb5" + payload(60), 0x88B5)
        return
    yield Shot("short header", ip4(udp(64))[:12], kind.carries[0])
    yield Shot("unknown ethertype", payload(60), 0x88B5)
    other = IPV6 if kind.carries[0] == IPV4 else IPV4
    if other not in kind.carries:
        packet = ip6(udp(64)) if other == IPV6 else ip4(udp(64))
        yield Shot("the other protocol", packet, other)


def fitting(kind: Kind, mtu: int) -> list[Shot]:
    """Return packets that fit into a tunnel's device, by its MTU, and some that it may refuse."""
    shots: list[Shot] = []
    if IPV4 in kind.carries:
        shots += _ipv4(kind, mtu)
    if IPV6 in kind.carries:
        shots += _ipv6(kind, max(mtu, 1280))
    return [*shots, *_odd(kind)]


def large(kind: Kind, mtu: int) -> list[Shot]:
    """Return packets for a device whose MTU was raised: ``mtu`` is what fits without fragments."""
    shots: list[Shot] = []
    for size in (mtu, mtu + 1, mtu + 9, 2000, 2900):
        if IPV4 in kind.carries:
            shots.append(_framed(kind, f"4 large {size}", ip4(udp(size - 28))))
            shots.append(_framed(kind, f"4 df large {size}", ip4(udp(size - 28), fragment=0x4000)))
        if IPV6 in kind.carries:
            shots.append(_framed(kind, f"6 large {size}", summed(ip6(udp(size - 48)), 40, 6, UDP)))
    return shots


def few(kind: Kind) -> list[Shot]:
    """Return some packets that every way below is tried with."""
    shots = []
    if IPV4 in kind.carries:
        shots.append(_framed(kind, "4", ip4(udp(100))))
        shots.append(_framed(kind, "4 df", ip4(udp(100), tos=0x02, fragment=0x4000)))
        packet = summed(ip4(tcp(2 * SEGMENT), TCP, fragment=0x4000), 20, 16, TCP, partial=True)
        shots.append(
            _framed(kind, "4 tcp", packet, Vnet(NEEDS_CSUM, GSO_TCPV4, 52, SEGMENT, 20, 16))
        )
    if IPV6 in kind.carries:
        shots.append(_framed(kind, "6", summed(ip6(udp(100)), 40, 6, UDP)))
    return shots
