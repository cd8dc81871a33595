# SPDX-License-Identifier: GPL-2.0-only
"""The packets to send through a tunnel: a fixed list for each kind of tunnel."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from proof.tunnels.kmeter import Frame
from proof.tunnels.links import INNER4, INNER6, IPV4, IPV6, MAC, Kind, checksum

OWN4, OWN6 = "198.18.5.1", "fd00:5::1"
"""Inner addresses of the near end."""
Ends = tuple[str, str]
_AT4: Ends = (OWN4, INNER4)
_AT6: Ends = (OWN6, INNER6)
OWN_MAC = bytes.fromhex("020000000501")
IDENT = 0x1234
"""IPv4 ID of inner packets: fixed, so that the kernel chooses none."""
VNET = struct.Struct("=BBHHHH")
"""struct virtio_net_hdr: flags, GSO type, header, segment, start and offset of the checksum."""
_SEGMENT = 1000
_UDP, _TCP = 17, 6
_DF, _MF = 0x4000, 0x2000
_PLAIN = (0, 0, 0, 0, 0, 0)


class Probe(NamedTuple):
    """A packet to send through a device.

    Attributes:
        data: from its link header on, or from its network header if the device has no link header.
        protocol: the payload's ethertype.
        vnet: struct virtio_net_hdr: the offloads to do.
    """

    name: str
    data: bytes
    protocol: int
    vnet: bytes = VNET.pack(*_PLAIN)


def payload(count: int) -> bytes:
    """Return ``count`` bytes, each different from its neighbours."""
    return bytes((7 * at + 3) & 0xFF for at in range(count))


def ip4(
    data: bytes, proto: int = _UDP, tos: int = 0, ttl: int = 64, fragment: int = 0, at: Ends = _AT4
) -> bytes:
    """Return an IPv4 packet; ``fragment`` is its field with IP_DF (0x4000) and IP_MF (0x2000)."""
    fields = (0x45, tos, 20 + len(data), IDENT, fragment, ttl, proto, 0)
    head = struct.pack("!BBHHHBBH4s4s", *fields, *map(socket.inet_aton, at))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + data


def ip6(
    data: bytes, proto: int = _UDP, tclass: int = 0, ttl: int = 64, label: int = 0, at: Ends = _AT6
) -> bytes:
    """Return an IPv6 packet."""
    head = struct.pack("!IHBB", 6 << 28 | tclass << 20 | label, len(data), proto, ttl)
    return head + b"".join(socket.inet_pton(socket.AF_INET6, one) for one in at) + data


def pseudo(packet: bytes, proto: int, count: int) -> bytes:
    """Return the pseudo header for the payload of an IP packet."""
    if packet[0] >> 4 == 4:
        return packet[12:20] + struct.pack("!HH", proto, count)
    return packet[8:40] + struct.pack("!II", count, proto)


def udp(count: int) -> bytes:
    """Return a UDP datagram with ``count`` bytes of payload and no checksum."""
    return struct.pack("!4H", 1000, 9, 8 + count, 0) + payload(count)


def summed(packet: bytes, proto: int = _UDP, *, partial: bool = False) -> bytes:
    """Fill in the checksum of UDP or TCP in an IP packet without options.

    Args:
        partial: of the pseudo header only.
    """
    at = 20 if packet[0] >> 4 == 4 else 40
    where = at + (6 if proto == _UDP else 16)
    over = pseudo(packet, proto, len(packet) - at)
    value = checksum(over) ^ 0xFFFF if partial else checksum(over + packet[at:])
    return packet[:where] + struct.pack("!H", value) + packet[where + 2 :]


def _put(kind: Kind, name: str, packet: bytes, vnet: tuple[int, ...] = _PLAIN) -> Probe:
    protocol = IPV4 if packet[0] >> 4 == 4 else IPV6
    if not kind.ethernet:
        return Probe(name, packet, protocol, VNET.pack(*vnet))
    flags, gso, header, segment, start, offset = vnet
    if flags:
        vnet = (flags, gso, header and header + 14, segment, start + 14, offset)
    link = MAC + OWN_MAC + struct.pack("!H", protocol)
    return Probe(name, link + packet, protocol, VNET.pack(*vnet))


def _segments(kind: Kind, version: int, proto: int, fragment: int = 0) -> Probe:
    """Return a GSO packet, which the tunnel or the device below segments."""
    size = 3 * _SEGMENT - 100
    if proto == _UDP:
        data, header, offset, gso = udp(size), 8, 6, 5
    else:
        data = struct.pack("!HHIIBBHHH", 2000, 5001, 100, 200, 5 << 4, 0x18, 500, 0, 0)
        data, header, offset, gso = data + payload(size), 20, 16, 1 if version == 4 else 4
    at = 20 if version == 4 else 40
    packet = ip4(data, proto, fragment=fragment) if version == 4 else ip6(data, proto)
    name = f"{version} segments of {proto} {fragment:#x}"
    vnet = (1, gso, at + header, _SEGMENT, at, offset)
    return _put(kind, name, summed(packet, proto, partial=True), vnet)


def _ipv4(kind: Kind, mtu: int) -> Iterator[Probe]:
    for size in (28, 577, mtu):
        yield _put(kind, f"4 size {size}", ip4(udp(size - 28)))
        yield _put(kind, f"4 df size {size}", ip4(udp(size - 28), fragment=_DF))
    for tos, ttl in ((0x01, 1), (0x02, 255), (0x03, 64), (0xB8, 64), (0xFF, 64)):
        yield _put(kind, f"4 tos {tos:#x} ttl {ttl}", ip4(udp(64), tos=tos, ttl=ttl))
    yield _put(kind, "4 first fragment", ip4(udp(192), fragment=_MF))
    yield _put(kind, "4 last fragment", ip4(payload(100), fragment=25))
    packet = summed(ip4(udp(100)), partial=True)
    yield _put(kind, "4 partial checksum", packet, (1, 0, 0, 0, 20, 6))
    for proto in (_TCP, _UDP):
        for fragment in (_DF, 0):
            yield _segments(kind, 4, proto, fragment)


def _ipv6(kind: Kind, mtu: int) -> Iterator[Probe]:
    for size in (48, 1280, mtu):
        yield _put(kind, f"6 size {size}", summed(ip6(udp(size - 48))))
    for tclass, ttl in ((0x01, 1), (0x02, 255), (0x03, 64), (0xB8, 64), (0xFF, 64)):
        yield _put(kind, f"6 class {tclass:#x} hops {ttl}", ip6(udp(64), tclass=tclass, ttl=ttl))
    yield _put(kind, "6 label", ip6(udp(64), label=0x12345))
    yield _put(kind, "6 limit reached", ip6(bytes((_UDP, 0, 4, 1, 0, 1, 0, 0)) + udp(64), 60))
    yield _put(kind, "6 fragment", ip6(bytes((_UDP, 0, 0, 1, 0, 0, 0, 9)) + udp(192), 44))
    packet = summed(ip6(udp(100)), partial=True)
    yield _put(kind, "6 partial checksum", packet, (1, 0, 0, 0, 40, 6))
    for proto in (_TCP, _UDP):
        yield _segments(kind, 6, proto)


def _odd(kind: Kind) -> Iterator[Probe]:
    """Yield packets that a tunnel may refuse."""
    if kind.ethernet:
        yield Probe("broadcast", bytes((255,)) * 6 + OWN_MAC + b"\x08\0" + ip4(udp(64)), IPV4)
        yield Probe("vlan", MAC + OWN_MAC + b"\x81\0\0\x05\x08\0" + ip4(udp(64), tos=0xB8), 0x8100)
        return
    yield Probe("short header", ip4(udp(64))[:12], kind.carries[0])
    yield Probe("unknown ethertype", payload(60), 0x88B5)
    for protocol, packet in ((IPV4, ip4(udp(64))), (IPV6, ip6(udp(64)))):
        if protocol not in kind.carries:
            yield Probe("the other protocol", packet, protocol)


def fitting(kind: Kind, mtu: int) -> list[Probe]:
    """Return packets that fit the MTU of a tunnel's device, and some that it may refuse."""
    probes = [*_ipv4(kind, mtu)] if IPV4 in kind.carries else []
    if IPV6 in kind.carries:
        probes += _ipv6(kind, max(mtu, 1280))
    return [*probes, *_odd(kind)]


def few(kind: Kind, long: int = 1280) -> list[Probe]:
    """Return the packets to send in each case (cases.py).

    Args:
        long: bytes of the longest ones.
    """
    probes = []
    if IPV4 in kind.carries:
        probes += [
            _put(kind, "4", ip4(udp(100))),
            _put(kind, "4 df", ip4(udp(100), tos=0x02, fragment=_DF)),
            _put(kind, "4 long", ip4(udp(long - 28))),
            _put(kind, "4 df long", ip4(udp(long - 28), fragment=_DF)),
            _segments(kind, 4, _TCP, _DF),
        ]
    if IPV6 in kind.carries:
        probes += [
            _put(kind, f"6 size {size}", summed(ip6(udp(size - 48)))) for size in (100, long)
        ]
    return probes


def frame(kind: Kind) -> Frame:
    """Return the packet to measure a kind of tunnel with."""
    packet = ip4(udp(64)) if IPV4 in kind.carries else summed(ip6(udp(64)))
    probe = _put(kind, "", packet)
    return Frame(probe.data, probe.protocol, len(probe.data) - len(packet))
