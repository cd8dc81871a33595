# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of tunnels that the series changes: how to create each, and its payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

IPV4, IPV6 = 0x0800, 0x86DD
HERE4, THERE4 = "198.18.4.1", "198.18.4.2"
HERE6, THERE6 = "fd00:4::1", "fd00:4::2"
INNER4, INNER6 = "198.18.5.2", "fd00:5::2"
MARK = 7
"""Of the packets of kinds with a mark."""
MAC = bytes.fromhex("020000000502")
"""Of an Ethernet tunnel's far end."""
FOU_PORT, GUE_PORT = 5555, 5556
SCTP_PORT, TIPC_PORT, AMT_PORT = 9899, 6118, 2268


@dataclass(frozen=True)
class LinkKind:
    """A kind of tunnel.

    Attributes:
        link: the end of ``ip link add NAME type ...``.
        metadata: arguments of tc's ``tunnel_key set`` at both ends; "": none.
        fou: the end of ``ip fou add port ...``, at both ends.
        ethernet: whether it carries Ethernet frames.
        outer6: whether its outer header is IPv6.
        only: the only ethertype that it carries; 0: IPv4 and IPv6.
        sealed: whether its payload is encrypted.
        mark: of its packets (skb->mark).
    """

    link: str
    metadata: str = ""
    fou: str = ""
    ethernet: bool = False
    outer6: bool = False
    only: int = 0
    sealed: bool = False
    mark: int = 0

    @property
    def carries(self) -> tuple[int, ...]:
        """The ethertypes that it carries."""
        return (self.only,) if self.only else (IPV4, IPV6)

    @property
    def there(self) -> str:
        """The outer address of the far end."""
        return THERE6 if self.outer6 else THERE4

    @property
    def route(self) -> str:
        """The destination of a route to the far end alone, better than the link's."""
        return f"{self.there}/{128 if self.outer6 else 32}"

    @property
    def ip(self) -> str:
        """The ``ip`` command for the family of the outer header."""
        return f"ip {'-6' if self.outer6 else '-4'}"


_4 = "local {here4} remote {there4}"
_6 = "local {here6} remote {there6}"
_KEY4 = "src_ip {here4} dst_ip {there4} id 1"
_KEY6 = "src_ip {here6} dst_ip {there6} id 1"
_FOU = f"encap fou encap-sport auto encap-dport {FOU_PORT}"
_GUE = f"encap gue encap-sport auto encap-dport {GUE_PORT} encap-csum"
_BAREUDP = "bareudp dstport 6635 ethertype ipv4 multiproto"
_VXLAN = "vxlan id 1 dstport 4789 nolearning"
_MD_VXLAN = "vxlan external dstport 4789 nolearning"
_INHERIT = "df inherit tos inherit ttl inherit"
_TNL_FULL = "encaplimit none hoplimit 9 tclass inherit flowlabel inherit"
_LINKS: Mapping[str, tuple[str, ...]] = {
    "vxlan": (f"{_VXLAN} {_4}",),
    "vxlan6": (f"{_VXLAN} {_6}",),
    "vxlan6-mark": (f"{_VXLAN} {_6}",),
    "vxlan-tos": (f"{_VXLAN} tos 0x14 {_4}",),
    "vxlan-mark": (f"{_VXLAN} {_4}",),
    "vxlan-inherit": (f"{_VXLAN} {_INHERIT} {_4}",),
    "vxlan-csum": (f"{_VXLAN} udpcsum df set tos 0x14 ttl 77 {_4}",),
    "vxlan-md": (_MD_VXLAN, f"{_KEY4} dst_port 4789 nocsum"),
    "vxlan-md-mark": (_MD_VXLAN, f"{_KEY4} dst_port 4789 nocsum"),
    "vxlan6-md": (_MD_VXLAN, f"{_KEY6} dst_port 4789 tos 5 ttl 9"),
    "geneve": ("geneve id 1 remote {there4}",),
    "geneve6": ("geneve id 1 remote {there6}",),
    "geneve-tos": ("geneve id 1 tos inherit remote {there4}",),
    "geneve-mark": ("geneve id 1 remote {there4}",),
    "geneve-inherit": (f"geneve id 1 {_INHERIT} remote {{there4}}",),
    "geneve-md": ("geneve external", f"{_KEY4} dst_port 6081"),
    "geneve6-md": ("geneve external", f"{_KEY6} dst_port 6081"),
    "gretap": (f"gretap nopmtudisc ignore-df ttl 9 {_4}",),
    "gretap-tos": (f"gretap tos inherit {_4}",),
    "gretap-md": ("gretap external", f"{_KEY4} nocsum"),
    "ip6gretap": (f"ip6gretap {_6}",),
    "ip6gre": (f"ip6gre {_6}",),
    "gre": (f"gre {_4}",),
    "gre-tos": (f"gre tos inherit {_4}",),
    "gre-full": (f"gre key 7 csum tos inherit ttl 33 {_4}",),
    "gre-fou": (f"gre {_4} {_FOU}", "", f"{FOU_PORT} ipproto 47"),
    "ipip": (f"ipip {_4}",),
    "ipip-gue": (f"ipip {_4} {_GUE}", "", f"{GUE_PORT} gue"),
    "sit": (f"sit {_4}",),
    "sit-any": (f"sit mode any tos inherit ttl 9 {_4}",),
    "sit-fou": (f"sit {_4} {_FOU}", "", f"{FOU_PORT} ipproto 41"),
    "ip6tnl": (f"ip6tnl mode any {_6}",),
    "ip6ip6": (f"ip6tnl mode ip6ip6 {_6}",),
    "ipip6": (f"ip6tnl mode ipip6 {_6}",),
    "ip6tnl-full": (f"ip6tnl mode any {_TNL_FULL} {_6}",),
    "ip6tnl-md": ("ip6tnl mode any external", _KEY6),
    "bareudp": (_BAREUDP, f"{_KEY4} dst_port 6635"),
    "bareudp6": (_BAREUDP, f"{_KEY6} dst_port 6635"),
    "gtp": ("gtp role ggsn",),
    "wireguard": ("wireguard",),
    "wireguard6": ("wireguard",),
    "ovpn": ("ovpn",),
    "ovpn6": ("ovpn",),
}
"""Name -> ``link``, ``metadata``, ``fou``."""


_ONLY = {
    IPV4: ("ipip", "gtp", "ip6tnl mode ipip6"),
    IPV6: ("sit local", "ip6tnl mode ip6ip6"),
}


def _kind(name: str, link: str, metadata: str = "", fou: str = "") -> LinkKind:
    return LinkKind(
        link,
        metadata,
        fou,
        ethernet=link.startswith(("vxlan", "geneve", "gretap", "ip6gretap")),
        outer6="6}" in link + metadata or name.endswith("6"),
        only=next((only for only, links in _ONLY.items() if link.startswith(links)), 0),
        sealed=link in ("wireguard", "ovpn"),
        mark=MARK if name.endswith("-mark") else 0,
    )


KINDS: Mapping[str, LinkKind] = {name: _kind(name, *fields) for name, fields in _LINKS.items()}
BEARERS: Mapping[str, LinkKind] = {
    name: LinkKind("", outer6=name.endswith("6"), sealed=True)
    for name in ("sctp", "sctp6", "tipc", "tipc6", "amt")
}
"""Protocols over UDP of which only the distinct frames are compared."""


def ends(here: bool) -> dict[str, str]:
    """Return the values of a kind's placeholders at the near end or the far one."""
    four, six = (HERE4, THERE4), (HERE6, THERE6)
    at = 0 if here else 1
    return {"here4": four[at], "there4": four[1 - at], "here6": six[at], "there6": six[1 - at]}
