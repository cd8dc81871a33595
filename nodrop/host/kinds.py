# SPDX-License-Identifier: GPL-2.0-only
"""Which links are shown, by the kernel's names for their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RINGS = frozenset({"tun", "macvtap", "ipvtap"})
"""Links with a ring that a program or vhost-net reads."""

DIRECT = frozenset({"macvtap", "ipvtap"})
"""Of these, those whose ring another device's receive path fills: no qdisc of theirs comes before
it, and what is for their reader they have received."""

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
"""Tunnels in the kernel: packets go on below them, there is no ring."""

_FALLBACK = frozenset(
    ["tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip6gre0", "ip_vti0", "ip6_vti0"]
)
"""Devices that a tunnel's module makes in every namespace; nobody asked for them."""


def is_shown(link: dict[str, Any]) -> bool:
    """Whether a link of ``ip -j -d link`` is a virtual link that commands show."""
    kind = link.get("linkinfo", {}).get("info_kind")
    if kind in RINGS:
        return True
    idle = link.get("ifname") in _FALLBACK and "UP" not in link.get("flags", [])
    return kind in TUNNELS and not idle


def kind_of(link: Mapping[str, Any]) -> str:
    """Return the kind as people know it: a link of the tun driver is a "tun" or a "tap"."""
    info = link["linkinfo"]
    if info["info_kind"] == "tun":
        return str(info.get("info_data", {}).get("type", "tun"))
    return str(info["info_kind"])
