# SPDX-License-Identifier: GPL-2.0-only
"""Kinds of links that commands show, by the kernel's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RINGS = frozenset({"tun", "macvtap", "ipvtap"})
"""Kinds with a ring that a program or vhost-net reads."""

DIRECT = frozenset({"macvtap", "ipvtap"})
"""Kinds whose ring another device's receive path fills: they have no qdisc before the ring, and
count packets for their reader as received."""

TUNNELS = frozenset(
    [
        "vxlan",
        "geneve",
        "bareudp",
        "gtp",
        "amt",
        "wireguard",
        "ovpn",
        "ovpn-dco",
        "ipip",
        "sit",
        "ip6tnl",
        "gre",
        "gretap",
        "erspan",
        "ip6gre",
        "ip6gretap",
        "ip6erspan",
        "vti",
        "vti6",
        "xfrm",
    ]
)
"""Tunnels in the kernel, which have no ring: packets go on to a lower device."""

_FALLBACK = frozenset(
    ["tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip6gre0", "ip_vti0", "ip6_vti0"]
)
"""Devices that a tunnel's module creates by itself in every namespace."""


def is_shown(link: dict[str, Any]) -> bool:
    """Return whether a link of ``ip -j -d link`` is a virtual link that commands show."""
    kind = link.get("linkinfo", {}).get("info_kind")
    if kind in RINGS:
        return True
    idle = link.get("ifname") in _FALLBACK and "UP" not in link.get("flags", [])
    return kind in TUNNELS and not idle


def kind_of(link: Mapping[str, Any]) -> str:
    """Return the kind that commands show: "tun" or "tap" for a link of the tun driver."""
    info = link["linkinfo"]
    if info["info_kind"] == "tun":
        return str(info.get("info_data", {}).get("type", "tun"))
    return str(info["info_kind"])
