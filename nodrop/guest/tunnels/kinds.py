# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of tunnels: how each is made, and what it carries."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from nodrop.guest.kmeter import Frame

IPV4, IPV6 = 0x0800, 0x86DD
HERE4, THERE4 = "198.18.4.1", "198.18.4.2"
HERE6, THERE6 = "fd00:4::1", "fd00:4::2"
INNER4, INNER6 = "198.18.5.2", "fd00:5::2"
MAC = bytes.fromhex("020000000502")
"""Of the far end of a tunnel for Ethernet."""
UDP_BYTES = 64
FOU_PORT, GUE_PORT = 5555, 5556
SCTP_PORT, TIPC_PORT = 9899, 6118


@dataclass(frozen=True)
class Kind:
    """A kind of tunnel.

    Attributes:
        link: the end of ``ip link add NAME type ...``.
        ethernet: it carries Ethernet frames.
        inner: ethertype of what is in them, or of what it carries.
        outer6: it goes over IPv6.
        only: the one protocol that it carries; 0: IPv4 and IPv6.
        metadata: of packets without any: the words of tc's ``tunnel_key set``.
        fou: the end of ``ip fou add port ...``, at both ends.
        sealed: what it carries is encrypted.
    """

    link: str
    ethernet: bool = False
    inner: int = IPV4
    outer6: bool = False
    only: int = 0
    metadata: str = ""
    fou: str = ""
    sealed: bool = False

    @property
    def carries(self) -> tuple[int, ...]:
        """The ethertypes of what a packet in it may be."""
        return (self.only,) if self.only else (IPV4, IPV6)


_4 = "local {here4} remote {there4}"
_6 = "local {here6} remote {there6}"
_KEY4 = "src_ip {here4} dst_ip {there4} id 1"
_KEY6 = "src_ip {here6} dst_ip {there6} id 1"
_FOU = f"encap fou encap-sport auto encap-dport {FOU_PORT}"
_GUE = f"encap gue encap-sport auto encap-dport {GUE_PORT}"
_BAREUDP = "bareudp dstport 6635 ethertype"
_VXLAN = "vxlan id 1 dstport 4789 nolearning"
_MD_VXLAN = "vxlan external dstport 4789 nolearning"
_ERSPAN = f"erspan seq key 1 erspan_ver 1 erspan 1 {_4}"

_ETHERNET: Mapping[str, Kind] = {
    "vxlan": Kind(f"{_VXLAN} {_4}", ethernet=True),
    "vxlan6": Kind(f"{_VXLAN} {_6}", ethernet=True, outer6=True),
    "vxlan-df": Kind(f"{_VXLAN} df set {_4}", ethernet=True),
    "vxlan-inherit": Kind(f"{_VXLAN} df inherit tos inherit ttl inherit {_4}", ethernet=True),
    "vxlan-csum": Kind(f"{_VXLAN} udpcsum tos 0x14 ttl 77 {_4}", ethernet=True),
    "vxlan6-nocsum": Kind(
        f"{_VXLAN} udp6zerocsumtx udp6zerocsumrx {_6}", ethernet=True, outer6=True
    ),
    "vxlan-md": Kind(_MD_VXLAN, ethernet=True, metadata=f"{_KEY4} dst_port 4789 nocsum"),
    "vxlan6-md": Kind(
        _MD_VXLAN, ethernet=True, outer6=True, metadata=f"{_KEY6} dst_port 4789 tos 5 ttl 9"
    ),
    "geneve": Kind("geneve id 1 remote {there4}", ethernet=True),
    "geneve6": Kind("geneve id 1 remote {there6}", ethernet=True, outer6=True),
    "geneve-df": Kind("geneve id 1 df set ttl 9 remote {there4}", ethernet=True),
    "geneve-inherit": Kind(
        "geneve id 1 df inherit tos inherit ttl inherit remote {there4}", ethernet=True
    ),
    "geneve-md": Kind("geneve external", ethernet=True, metadata=f"{_KEY4} dst_port 6081"),
    "geneve6-md": Kind(
        "geneve external", ethernet=True, outer6=True, metadata=f"{_KEY6} dst_port 6081"
    ),
    "gretap": Kind(f"gretap {_4}", ethernet=True),
    "gretap-nopmtu": Kind(f"gretap nopmtudisc ignore-df ttl 9 {_4}", ethernet=True),
    "gretap-md": Kind("gretap external", ethernet=True, metadata=f"{_KEY4} nocsum"),
    "erspan": Kind(_ERSPAN, ethernet=True),
    "erspan-md": Kind("erspan external", ethernet=True, metadata=f"{_KEY4} erspan_opts 1:1:0:0"),
    "ip6gretap": Kind(f"ip6gretap {_6}", ethernet=True, outer6=True),
    "ip6gretap-md": Kind("ip6gretap external", ethernet=True, outer6=True, metadata=_KEY6),
    "ip6erspan": Kind(
        f"ip6erspan seq key 1 erspan_ver 2 erspan_dir ingress erspan_hwid 5 {_6}",
        ethernet=True,
        outer6=True,
    ),
}
_PLAIN: Mapping[str, Kind] = {
    "gre": Kind(f"gre {_4}"),
    "gre-full": Kind(f"gre key 7 csum seq tos inherit ttl 33 {_4}"),
    "gre-nopmtu": Kind(f"gre nopmtudisc ignore-df {_4}"),
    "gre-md": Kind("gre external", metadata=f"{_KEY4} nocsum"),
    "gre-fou": Kind(f"gre {_4} {_FOU}", fou=f"{FOU_PORT} ipproto 47"),
    "ipip": Kind(f"ipip {_4}", only=IPV4),
    "ipip-nopmtu": Kind(f"ipip nopmtudisc {_4}", only=IPV4),
    "ipip-md": Kind("ipip external", only=IPV4, metadata=_KEY4),
    "ipip-fou": Kind(f"ipip {_4} {_FOU}", only=IPV4, fou=f"{FOU_PORT} ipproto 4"),
    "ipip-gue": Kind(f"ipip {_4} {_GUE} encap-csum", only=IPV4, fou=f"{GUE_PORT} gue"),
    "sit": Kind(f"sit {_4}", inner=IPV6, only=IPV6),
    "sit-any": Kind(f"sit mode any tos inherit ttl 9 {_4}", inner=IPV6),
    "sit-fou": Kind(f"sit {_4} {_FOU}", inner=IPV6, only=IPV6, fou=f"{FOU_PORT} ipproto 41"),
    "ip6tnl": Kind(f"ip6tnl mode any {_6}", outer6=True),
    "ip6tnl-full": Kind(
        f"ip6tnl mode any encaplimit none hoplimit 9 tclass inherit flowlabel inherit {_6}",
        outer6=True,
    ),
    "ip6tnl-md": Kind("ip6tnl mode any external", outer6=True, metadata=_KEY6),
    "ip6tnl-fou": Kind(
        f"ip6tnl mode ip6ip6 {_6} encaplimit none {_FOU}",
        inner=IPV6,
        only=IPV6,
        outer6=True,
        fou=f"{FOU_PORT} ipproto 41",
    ),
    "ip6gre": Kind(f"ip6gre {_6}", outer6=True),
    "ip6gre-full": Kind(f"ip6gre key 7 csum seq encaplimit none {_6}", outer6=True),
    "bareudp": Kind(f"{_BAREUDP} ipv4 multiproto", metadata=f"{_KEY4} dst_port 6635"),
    "bareudp6": Kind(f"{_BAREUDP} ipv4 multiproto", outer6=True, metadata=f"{_KEY6} dst_port 6635"),
    "wireguard": Kind("wireguard", sealed=True),
    "wireguard6": Kind("wireguard", outer6=True, sealed=True),
    "ovpn": Kind("ovpn", sealed=True),
    "ovpn6": Kind("ovpn", outer6=True, sealed=True),
}
KINDS: Mapping[str, Kind] = {**_ETHERNET, **_PLAIN}
BEARERS: Mapping[str, Kind] = {
    "sctp": Kind("", sealed=True),
    "sctp6": Kind("", outer6=True, sealed=True),
    "tipc": Kind("", sealed=True),
    "tipc6": Kind("", outer6=True, sealed=True),
}
"""Protocols over UDP without a device."""


def ends(here: bool) -> dict[str, str]:
    """Return the addresses that a kind's words name, as one end or the other sees them."""
    four, six = (HERE4, THERE4), (HERE6, THERE6)
    at = 0 if here else 1
    return {"here4": four[at], "there4": four[1 - at], "here6": six[at], "there6": six[1 - at]}


def _udp() -> bytes:
    return struct.pack("!4H", 1000, 9, 8 + UDP_BYTES, 0) + bytes(UDP_BYTES)


def checksum(data: bytes) -> int:
    """Return the internet checksum of some bytes, RFC 1071."""
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(kind: Kind) -> Frame:
    """Return a packet that a tunnel of a kind carries: UDP to nobody."""
    data = _udp()
    if kind.inner == IPV4:
        source, target = bytes((198, 18, 5, 1)), bytes((198, 18, 5, 2))
        length = 20 + len(data)
        header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, source, target)
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    else:
        prefix = bytes.fromhex("fd000005") + bytes(11)
        header = struct.pack("!IHBB", 6 << 28, len(data), 17, 64)
        header += prefix + b"\x01" + prefix + b"\x02"
    if not kind.ethernet:
        return Frame(header + data, kind.inner, 0)
    link = MAC + bytes.fromhex("020000000501") + struct.pack("!H", kind.inner)
    return Frame(link + header + data, kind.inner, len(link))
