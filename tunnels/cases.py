# SPDX-License-Identifier: GPL-2.0-only
"""The cases in which packets are recorded: routes, neighbours, policies, hooks, devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from guestlib.process import tool
from tunnels.links import HERE4, HERE6, MARK, LinkKind
from tunnels.packets import RULE_TOS
from tunnels.topology import BELOW, FAR_MAC, NAME, lower_pmtu

_GATE4, _GATE6, _GATE_MAC = "198.18.4.3", "fd00:4::3", "02:00:00:00:04:03"
LONG = 1280
"""Bytes of a packet that fits every tunnel's MTU, but not through an MTU of 1300."""
_OFFLOADS = (
    *("tx", "sg", "tso", "gso", "tx-udp-segmentation", "tx-udp_tnl-segmentation"),
    *("tx-udp_tnl-csum-segmentation", "tx-gre-segmentation", "tx-gre-csum-segmentation"),
    *("tx-ipxip4-segmentation", "tx-ipxip6-segmentation"),
)
_ESP = f"proto esp spi 0x99 reqid 1 aead rfc4106(gcm(aes)) 0x{'11' * 20} 128"


class PacketCase(NamedTuple):
    """A change of what a tunnel's packets meet.

    Attributes:
        do: commands that make the change, one a line; or a function.
        undo: commands that revert it.
        long: bytes of the longest packets.
    """

    name: str
    do: str | Callable[[], None]
    undo: str
    long: int = LONG

    def make(self) -> None:
        if callable(self.do):
            self.do()
        else:
            _run(self.do)

    def revert(self) -> None:
        _run(self.undo)


def _run(commands: str) -> None:
    for command in commands.splitlines():
        tool(command.split())


def _policies(here: str, there: str) -> list[PacketCase]:
    select = f"src {here} dst {there} dir out"
    remove = f"ip xfrm policy delete {select}"
    listed = [PacketCase("policy blocks", f"ip xfrm policy add {select} action block", remove)]
    for mode in ("transport", "tunnel"):
        outer = f"tmpl src {here} dst {there} proto esp reqid 1 mode {mode}"
        do = f"ip xfrm state add src {here} dst {there} {_ESP} mode {mode}\n"
        do += f"ip xfrm policy add {select} {outer}"
        undo = f"{remove}\nip xfrm state delete src {here} dst {there} proto esp spi 0x99"
        listed.append(PacketCase(f"ESP, {mode}", do, undo))
    return listed


def _rules(kind: LinkKind, gate: str) -> Iterator[PacketCase]:
    """Yield rules by which packets of one tunnel have different routes."""
    # sit caches the route of the first packet's traffic class (patches/fixes).
    if kind.link.startswith("sit"):
        return
    ip = kind.ip
    for name in (f"tos {RULE_TOS:#x}", f"fwmark {MARK}"):
        do = f"{ip} route add {kind.route} via {gate} dev {BELOW} table 77\n"
        do += f"{ip} rule add {name} table 77"
        undo = f"{ip} rule del {name} table 77\n{ip} route flush table 77"
        yield PacketCase(f"rule {name}", do, undo)


def _hooks(kind: LinkKind, there: str) -> list[PacketCase]:
    family, ttl = ("ip6", "ip6 hoplimit") if kind.outer6 else ("ip", "ip ttl")
    rows = (("postrouting", f"{ttl} set 7"), ("output", f"{ttl} set 8"))
    return [
        PacketCase(
            f"{hook}: {rule}",
            f"nft add table {family} nd\n"
            f"nft add chain {family} nd c {{ type filter hook {hook} priority 0 ; }}\n"
            f"nft add rule {family} nd c {family} daddr {there} {rule}",
            f"nft delete table {family} nd",
        )
        for hook, rule in (*rows, ("output", "drop"), ("postrouting", "drop"))
    ]


def label(kind: LinkKind) -> PacketCase:
    """Return the case of a route that pushes an MPLS label: a cache takes references on it."""
    do = f"ip route add {kind.route} encap mpls 100 via {kind.there} dev {BELOW}"
    return PacketCase("label", do, f"ip route del {kind.route}")


def cases(kind: LinkKind, mtu: int) -> list[PacketCase]:
    """Return all cases for a kind of tunnel; the last one leaves the device below down.

    Args:
        mtu: of the tunnel's device.
    """
    here, gate = (HERE6, _GATE6) if kind.outer6 else (HERE4, _GATE4)
    there, full = kind.there, kind.route
    route, remove = f"ip route add {full} dev {BELOW}", f"ip route del {full}"
    gates = "\n".join(
        f"ip neigh replace {address} lladdr {_GATE_MAC} dev {BELOW} nud permanent"
        for address in (_GATE4, _GATE6)
    )
    neighbour = f"ip neigh replace {there} lladdr {FAR_MAC} dev {BELOW} nud"
    software = f"ethtool -K {BELOW} " + " ".join(f"{name} off" for name in _OFFLOADS)
    listed = [
        PacketCase("nothing else", gates, "", mtu + 1),
        PacketCase("segments in software", software, software.replace(" off", " on")),
        PacketCase("tall", f"ip link set {NAME} mtu 3000", f"ip link set {NAME} mtu {mtu}", 2000),
        PacketCase("route", route, remove),
        PacketCase("gateway", f"ip route add {full} via {gate} dev {BELOW}", remove),
        PacketCase("route mtu", f"{route} mtu 1300", remove),
        PacketCase("route mtu lock", f"{route} mtu lock 1300", remove),
        PacketCase("route hoplimit", f"{route} hoplimit 33", remove),
        PacketCase(
            "unreachable", f"ip route add unreachable {full}", f"ip route del unreachable {full}"
        ),
        PacketCase(
            "neighbour unresolved", f"ip neigh del {there} dev {BELOW}", f"{neighbour} permanent"
        ),
        PacketCase("neighbour stale", f"{neighbour} stale", f"{neighbour} permanent"),
        *_rules(kind, gate),
        *_policies(here, there),
        *_hooks(kind, there),
    ]
    if not kind.outer6:
        via = f"ip route add {full} via inet6 {_GATE6} dev {BELOW}"
        listed.append(PacketCase("gateway of IPv6", via, remove))
        listed.append(PacketCase("path MTU", partial(lower_pmtu, 1300), "ip route flush cache"))
    smaller = f"ip link set {BELOW} mtu 1300"
    listed.append(PacketCase("smaller below", smaller, smaller.replace("1300", "1500")))
    listed.append(PacketCase("down below", f"ip link set {BELOW} down", ""))
    return listed
