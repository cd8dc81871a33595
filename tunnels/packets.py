# SPDX-License-Identifier: GPL-2.0-only
"""The packets to send through a tunnel: a fixed list for each kind of tunnel."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from guestlib import packets
from guestlib.packets import TCP, UDP, payload, summed, udp
from tunnels.links import INNER4, INNER6, IPV4, IPV6, MAC, LinkKind

OWN4, OWN6 = "198.18.5.1", "fd00:5::1"
"""Inner addresses of the near end."""
OWN_MAC = bytes.fromhex("020000000501")
ip4 = partial(packets.ip4, at=(OWN4, INNER4))
ip6 = partial(packets.ip6, at=(OWN6, INNER6))
VNET = struct.Struct("=BBHHHH")
"""struct virtio_net_hdr: flags, GSO type, header, segment, start and offset of the checksum."""
RULE_TOS = 0x10
"""TOS or traffic class that a case's rule matches (cases.py); IPv4 knows no more than four bits."""
_ARP = 0x0806
_SEGMENT = 1000
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

    def send(self, sock: socket.socket, device: str) -> None:
        """Send it by a packet socket (topology.py)."""
        address = (device, self.protocol, 0, 0, self.data[:6])
        sock.sendto(self.vnet + self.data, address)


def _put(kind: LinkKind, name: str, packet: bytes, vnet: tuple[int, ...] = _PLAIN) -> Probe:
    protocol = IPV4 if packet[0] >> 4 == 4 else IPV6
    if not kind.ethernet:
        return Probe(name, packet, protocol, VNET.pack(*vnet))
    flags, gso, header, segment, start, offset = vnet
    if flags:
        vnet = (flags, gso, header and header + 14, segment, start + 14, offset)
    link = MAC + OWN_MAC + struct.pack("!H", protocol)
    return Probe(name, link + packet, protocol, VNET.pack(*vnet))


def _segments(kind: LinkKind, version: int, proto: int, fragment: int = 0) -> Probe:
    """Return a GSO packet, which the tunnel or the device below segments."""
    size = 3 * _SEGMENT - 100
    if proto == UDP:
        data, header, offset, gso = udp(size), 8, 6, 5
    else:
        data = struct.pack("!HHIIBBHHH", 2000, 5001, 100, 200, 5 << 4, 0x18, 500, 0, 0)
        data, header, offset, gso = data + payload(size), 20, 16, 1 if version == 4 else 4
    at = 20 if version == 4 else 40
    packet = ip4(data, proto, fragment=fragment) if version == 4 else ip6(data, proto)
    name = f"{version} segments of {proto} {fragment:#x}"
    vnet = (1, gso, at + header, _SEGMENT, at, offset)
    return _put(kind, name, summed(packet, proto, partial=True), vnet)


def _ipv4(kind: LinkKind, mtu: int) -> Iterator[Probe]:
    for size in (28, 577, mtu):
        yield _put(kind, f"4 size {size}", ip4(udp(size - 28)))
        yield _put(kind, f"4 df size {size}", ip4(udp(size - 28), fragment=_DF))
    for tos, ttl in ((0x01, 1), (0x02, 255), (0x03, 64), (0xB8, 64), (0xFF, 64)):
        yield _put(kind, f"4 tos {tos:#x} ttl {ttl}", ip4(udp(64), tos=tos, ttl=ttl))
    yield _put(kind, "4 first fragment", ip4(udp(192), fragment=_MF))
    yield _put(kind, "4 last fragment", ip4(payload(100), fragment=25))
    packet = summed(ip4(udp(100)), partial=True)
    yield _put(kind, "4 partial checksum", packet, (1, 0, 0, 0, 20, 6))
    for proto in (TCP, UDP):
        for fragment in (_DF, 0):
            yield _segments(kind, 4, proto, fragment)


def _ipv6(kind: LinkKind, mtu: int) -> Iterator[Probe]:
    for size in (48, 1280, mtu):
        yield _put(kind, f"6 size {size}", summed(ip6(udp(size - 48))))
    for tclass, ttl in ((0x01, 1), (0x02, 255), (0x03, 64), (0xB8, 64), (0xFF, 64)):
        yield _put(kind, f"6 class {tclass:#x} hops {ttl}", ip6(udp(64), tclass=tclass, ttl=ttl))
    yield _put(kind, "6 label", ip6(udp(64), label=0x12345))
    yield _put(kind, "6 limit reached", ip6(bytes((UDP, 0, 4, 1, 0, 1, 0, 0)) + udp(64), 60))
    yield _put(kind, "6 fragment", ip6(bytes((UDP, 0, 0, 1, 0, 0, 0, 9)) + udp(192), 44))
    packet = summed(ip6(udp(100)), partial=True)
    yield _put(kind, "6 partial checksum", packet, (1, 0, 0, 0, 40, 6))
    for proto in (TCP, UDP):
        yield _segments(kind, 6, proto)


def _odd(kind: LinkKind) -> Iterator[Probe]:
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


def fitting(kind: LinkKind, mtu: int) -> list[Probe]:
    """Return packets that fit the MTU of a tunnel's device, and some that it may refuse."""
    probes = [*_ipv4(kind, mtu)] if IPV4 in kind.carries else []
    if IPV6 in kind.carries:
        probes += _ipv6(kind, max(mtu, 1280))
    return [*probes, *_odd(kind)]


def few(kind: LinkKind, long: int) -> list[Probe]:
    """Return the packets to send in each case (cases.py).

    Args:
        long: bytes of the longest ones.
    """
    probes = []
    if IPV4 in kind.carries:
        probes += [
            _put(kind, "4", ip4(udp(100))),
            _put(kind, "4 df", ip4(udp(100), tos=0x02, fragment=_DF)),
            _put(kind, "4 tos", ip4(udp(100), tos=RULE_TOS)),
            _put(kind, "4 long", ip4(udp(long - 28))),
            _put(kind, "4 df long", ip4(udp(long - 28), fragment=_DF)),
            _segments(kind, 4, TCP, _DF),
        ]
    if IPV6 in kind.carries:
        probes += [
            _put(kind, f"6 size {size}", summed(ip6(udp(size - 48)))) for size in (100, long)
        ]
        probes += [_put(kind, "6 class", summed(ip6(udp(100), tclass=RULE_TOS)))]
    return probes


def flows(kind: LinkKind, count: int, tos: int, ethertype: int = 0) -> list[Probe]:
    """Return a packet of each of several flows with a TOS; first ARP, if the tunnel carries it.

    Args:
        ethertype: of the flows; 0: the first that the tunnel carries.
    """
    ethertype = ethertype or kind.carries[0]
    arp = struct.pack("!HHBBH6s4s6s4s", 1, IPV4, 6, 4, 1, OWN_MAC, bytes(4), bytes(6), bytes(4))
    link = bytes((255,)) * 6 + OWN_MAC + struct.pack("!H", _ARP)
    probes = [Probe("arp", link + arp, _ARP)] if kind.ethernet else []
    for port in range(2000, 2000 + count):
        data = udp(100, port)
        packet = ip4(data, tos=tos) if ethertype == IPV4 else summed(ip6(data, tclass=tos))
        probes.append(_put(kind, f"port {port}", packet))
    return probes


def measured(kind: LinkKind, payload_bytes: int = 64) -> Probe:
    """Return the packet to measure a kind of tunnel with."""
    data = udp(payload_bytes)
    return _put(kind, "", ip4(data) if IPV4 in kind.carries else summed(ip6(data)))
