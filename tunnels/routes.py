# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m tunnels.routes [--fault NAME] [PART ...]``: by which routes tunnels send.

A cache must give no packet another flow's route, nor one that is out of date. A part sends flows,
or changes a tunnel or what its routes depend on. ``routes.json`` in LAB_OUT has:

- ``flows-`` and a type: for each choice and TOS, how many gateways the flows use, if next hops are
  chosen by a hash of the flow, or a rule by its ports;
- ``local``: for each kind with a local address, the source addresses after a change of it;
- ``remote``: for an ip6gre device that got its remote address late, each destination's gateways;
- ``table``: the gateways, with a mark and without, after a rule's table got its first route;
- ``dead``: the gateways a little over a second after the best gateway failed;
- ``deprecated``: the source addresses a little over a second after theirs was deprecated;
- ``own``: how many gateways a hash gives to unmarked packets that are sent beside marked ones;
- ``encap``: for some types, how many frames have an MPLS label while the route pushes one, and when
  it has gone;
- ``vrf``: how many packets of each protocol leave by a sit device's link, in a VRF with two routes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from guestlib.environment import prepare_system, set_sysctls
from guestlib.packets import ip6, summed, udp
from guestlib.process import ip_batch, tool
from tunnels import faults
from tunnels.cases import PacketCase, label
from tunnels.links import HERE6, IPV6, KINDS, MARK, THERE4, THERE6, LinkKind
from tunnels.packets import OWN6, Probe, flows
from tunnels.topology import BELOW, BEYOND, FAR, NAME, SINK, packet_socket, prepare, take, tunnel

_FLOWS = 32
"""So many that they take both of two routes."""
_TOS = (0x00, 0x01, 0x10)
"""0x01 is ECN's ECT(1), and also how a tunnel asks for an inherited TOS."""
_QUIET_S = 0.1
_FEW_FRAMES = 2
"""Frames that may leave by a route that the flows do not take: ARP, neighbour solicitations."""
MACS = ("02:00:00:00:04:03", "02:00:00:00:04:04")
_GATES = {False: ("198.18.4.3", "198.18.4.4"), True: ("fd00:4::3", "fd00:4::4")}
_POLICIES = ("net/ipv4/fib_multipath_hash_policy", "net/ipv6/fib_multipath_hash_policy")
_SPORTS = "1-46000"
"""About half of the ports from which UDP tunnels choose."""
OTHER4, OTHER6 = "198.18.4.9", "fd00:4::9"
"""The local address after the change; another remote one."""
_VRF, _TABLE = "ndvrf0", 88
_LATE = LinkKind("ip6gre local {here6}", outer6=True)
_ENCAPSULATED = ("vxlan", "vxlan6", "gre", "ipip", "sit", "ip6ip6", "ip6gre")
_KEPT_S = 1.1
"""After it, a cache's entry is looked up anew, and another flow may replace it."""
_TIMES, _PAUSE_S = 16, 0.2
"""How often the own flow sends, and its pauses: shorter than the second for which it keeps the
entry, longer than a second together."""
FEW = 4
"""Packets of each kind."""


def _hash_ports() -> None:
    """Let the hash that chooses next hops include ports."""
    set_sysctls(dict.fromkeys(_POLICIES, "1"))


def _gates_known() -> None:
    """Give the gateways permanent neighbours."""
    lines = [
        f"neigh replace {gate} lladdr {mac} dev {BELOW} nud permanent"
        for gates in _GATES.values()
        for gate, mac in zip(gates, MACS, strict=True)
    ]
    ip_batch(lines)


def _choices(kind: LinkKind) -> list[PacketCase]:
    """Return what lets flows have different routes."""
    ip, full = kind.ip, kind.route
    first, second = (f"via {gate} dev {BELOW}" for gate in _GATES[kind.outer6])
    hops = f"nexthop {first} nexthop {second}"
    chosen = f"iif lo ipproto udp sport {_SPORTS} table 77"
    make = f"{ip} route add {full} {first} table 77\n{ip} route add {full} {second}\n"
    revert = f"{ip} rule del {chosen}\n{ip} route del {full}\n{ip} route flush table 77"
    return [
        PacketCase("next hops", f"{ip} route add {full} {hops}", f"{ip} route del {full}"),
        PacketCase("rule", f"{make}{ip} rule add {chosen}", revert),
    ]


def _transmit(probes: Iterable[Probe], mark: int = 0) -> list[bytes]:
    """Send packets; return the frames that arrive below."""
    with (
        packet_socket(NAME, mark=mark) as source,
        packet_socket(BEYOND, FAR, receive=True) as sink,
    ):
        for probe in probes:
            probe.send(source, NAME)
        (frames,) = take([sink], _QUIET_S)
    return [frame for _, frame in frames]


def _gateway(frame: bytes) -> str:
    """Return the MAC address that a frame is for."""
    return frame[:6].hex(":")


def spread(kind: LinkKind) -> dict[str, int]:
    """Return, for each choice and TOS, how many gateways the flows use."""
    found = {}
    prepare()
    with tunnel(kind):
        _hash_ports()
        _gates_known()
        for case in _choices(kind):
            for tos in _TOS:
                case.make()
                took = Counter(map(_gateway, _transmit(flows(kind, _FLOWS, tos), kind.mark)))
                used = [took[mac] > _FEW_FRAMES for mac in MACS]
                found[f"{case.name}, tos {tos:#x}"] = sum(used)
                case.revert()
    return found


def _is_icmp(frame: bytes) -> bool:
    four, six = frame[23] == socket.IPPROTO_ICMP, frame[20] == socket.IPPROTO_ICMPV6
    return six if frame[12:14] == b"\x86\xdd" else four


def _address(frame: bytes, *, source: bool) -> str:
    """Return an address of a frame's outer header."""
    six = frame[12:14] == b"\x86\xdd"
    family, size, at = (socket.AF_INET6, 16, 22) if six else (socket.AF_INET, 4, 26)
    start = at if source else at + size
    return socket.inet_ntop(family, frame[start : start + size])


def _sources(frames: Iterable[bytes], there: str) -> list[str]:
    """Return the sources of a tunnel's frames to an address; an ICMP error is not the tunnel's."""
    ours = [f for f in frames if _address(f, source=False) == there and not _is_icmp(f)]
    return sorted({_address(frame, source=True) for frame in ours})


def local(kind: LinkKind) -> list[str]:
    """Return the sources of a tunnel's packets after its local address was changed."""
    other = OTHER6 if kind.outer6 else OTHER4
    prepare()
    with tunnel(kind):
        ip_batch(
            [f"address add {OTHER4}/24 dev {BELOW}", f"address add {OTHER6}/64 dev {BELOW} nodad"]
        )
        probes = flows(kind, FEW, 0x10)
        _transmit(probes, kind.mark)
        ip_batch([f"link set {NAME} type {kind.link.split()[0]} local {other}"])
        frames = _transmit(probes, kind.mark)
    return _sources(frames, kind.there)


def late_remote() -> dict[str, list[str]]:
    """Return, for each destination in the packets' headers, the gateways that they took.

    A device created without a remote address sends to the one in a packet's header, even later.
    """
    prepare()
    with tunnel(_LATE):
        first, second = _GATES[True]
        _gates_known()
        lines = [f"route add {THERE6}/128 via {first} dev {BELOW}"]
        lines += [f"route add {OTHER6}/128 via {second} dev {BELOW}"]
        ip_batch([*lines, f"link set {NAME} type ip6gre remote {THERE6}"])
        packets = [summed(ip6(udp(64), at=(OWN6, there))) for there in (THERE6, OTHER6)]
        frames = _transmit([Probe("", packet, IPV6) for packet in (*packets, *packets)])
    found: dict[str, set[str]] = {}
    for frame in frames:
        if (mac := _gateway(frame)) in MACS:
            found.setdefault(_address(frame, source=False), set()).add(mac)
    return {address: sorted(macs) for address, macs in found.items()}


def _gateways(kind: LinkKind) -> list[str]:
    """Send packets; return the MAC addresses of the gateways of those to the far end."""
    frames = _transmit(flows(kind, FEW, 0), kind.mark)
    return sorted({_gateway(f) for f in frames if _address(f, source=False) == kind.there})


def table(kind: LinkKind) -> list[str]:
    """Return the gateways after a table that a rule prefers got a route."""
    ip, there = kind.ip, kind.there
    rule = f"fwmark {kind.mark}" if kind.mark else f"to {there}"
    prepare()
    with tunnel(kind):
        _gates_known()
        tool(f"{ip} rule add {rule} table {_TABLE}".split())
        _gateways(kind)
        route = f"{there} via {_GATES[kind.outer6][1]} dev {BELOW}"
        tool(f"{ip} route add {route} table {_TABLE}".split())
        found = _gateways(kind)
        tool(f"{ip} rule del {rule} table {_TABLE}".split())
        tool(f"{ip} route flush table {_TABLE}".split())
    return found


def dead(kind: LinkKind) -> list[str]:
    """Return the IPv6 gateways after the best one's neighbour entry failed, without forwarding.

    Nothing invalidates its route. A cache may use it for a second.
    """
    prepare()
    with tunnel(kind):
        _gates_known()
        first, second = _GATES[True]
        lines = [f"route add {THERE6} via {first} dev {BELOW} metric 1"]
        ip_batch([*lines, f"route add {THERE6} via {second} dev {BELOW} metric 2"])
        _gateways(kind)
        ip_batch([f"neigh replace {first} dev {BELOW} nud failed"])
        time.sleep(_KEPT_S)
        return _gateways(kind)


def deprecated() -> list[str]:
    """Return the sources of marked packets after their source address was deprecated."""
    kind = replace(KINDS["geneve6"], mark=MARK)
    prepare()
    with tunnel(kind):
        ip_batch([f"address add {OTHER6}/64 dev {BELOW} nodad preferred_lft 0"])
        _gateways(kind)
        for address, left in ((OTHER6, "forever"), (HERE6, "0")):
            ip_batch([f"address change {address}/64 dev {BELOW} preferred_lft {left}"])
        time.sleep(_KEPT_S)
        frames = _transmit(flows(kind, FEW, 0), MARK)
    return _sources(frames, THERE6)


def encap(kind: LinkKind) -> list[int]:
    """Return how many frames have a label while the route pushes one, and then without it."""
    case = label(kind)
    prepare()
    with tunnel(kind):
        case.make()
        pushed = [*_transmit(flows(kind, FEW, 0)), *_transmit(flows(kind, FEW, 0))]
        case.revert()
        plain = _transmit(flows(kind, FEW, 0))
    return [sum(f[12:14] == b"\x88\x47" for f in frames) for frames in (pushed, plain)]


def own() -> int:
    """Return how many gateways a tunnel's own flow uses while marked packets are sent, too.

    A hash chooses for the own flow, so each of its lookups may yield the other one.
    """
    kind = KINDS["vxlan"]
    took: set[str] = set()
    prepare()
    with tunnel(kind):
        _gates_known()
        _hash_ports()
        hops = " ".join(f"nexthop via {gate} dev {BELOW}" for gate in _GATES[False])
        alone = f"{THERE4}/32 via {_GATES[False][0]} dev {BELOW}"
        ip_batch([f"route add {THERE4}/32 {hops}", f"route add {alone} table {_TABLE}"])
        tool(f"ip rule add fwmark {MARK} table {_TABLE}".split())
        probes = flows(kind, _TIMES * FEW, 0x10)[1:]
        for at in range(0, len(probes), FEW):
            took |= {_gateway(f) for f in _transmit(probes[at : at + FEW])} & {*MACS}
            _transmit(probes, MARK)
            time.sleep(_PAUSE_S)
        tool(f"ip rule del fwmark {MARK} table {_TABLE}".split())
        ip_batch([f"route flush table {_TABLE}"])
    return len(took)


def vrf() -> dict[int, int]:
    """Return how many packets of each outer protocol leave by the link of a sit device.

    The device below is its link, and its VRF also has a better route by another device. sit sends
    IPv6 only by its link, and IPv4 by any device of the VRF.
    """
    kind = KINDS["sit-any"]
    prepare()
    with tunnel(kind):
        lines = [f"link add {_VRF} type vrf table {_TABLE}", f"link set {_VRF} up"]
        lines += [f"link add {SINK} type dummy", f"link set {SINK} up"]
        lines += [f"link set {device} master {_VRF}" for device in (SINK, BELOW)]
        lines += [f"neigh replace {THERE4} lladdr {MACS[0]} dev {BELOW} nud permanent"]
        lines += [f"route add {THERE4}/32 dev {SINK} table {_TABLE}"]
        ip_batch([*lines, f"link set {NAME} type sit dev {BELOW}"])
        time.sleep(_KEPT_S)
        frames = _transmit([*flows(kind, FEW, 0, IPV6), *flows(kind, FEW, 0)] * 2)
        ip_batch([f"link delete {SINK}", f"link delete {_VRF}"])
    return Counter(frame[23] for frame in frames if _gateway(frame) == MACS[0])


PARTS: dict[str, Callable[[], Any]] = {
    **{
        f"flows-{name}": partial(spread, kind)
        for name, kind in KINDS.items()
        if not (kind.sealed or name.startswith("sit"))
    },
    "local": lambda: {name: local(kind) for name, kind in KINDS.items() if " local {" in kind.link},
    "remote": late_remote,
    "table": lambda: {name: table(KINDS[name]) for name in ("vxlan-mark", "vxlan6-mark", "ip6gre")},
    "dead": lambda: {name: dead(KINDS[name]) for name in ("vxlan6-mark", "ip6gre")},
    "deprecated": deprecated,
    "encap": lambda: {name: encap(KINDS[name]) for name in _ENCAPSULATED},
    "own": own,
    "vrf": vrf,
}


def main(argv: list[str]) -> int:
    """Run the given parts, or all."""
    parser = argparse.ArgumentParser(prog="tunnels.routes")
    parser.add_argument("--fault", choices=faults.FAULTS)
    parser.add_argument("parts", nargs="*", choices=(*PARTS, "all"), default="all", metavar="PART")
    options = parser.parse_args(argv)
    prepare_system()
    if options.fault:
        faults.make(options.fault)
    chosen = PARTS if "all" in options.parts else options.parts
    found = {name: PARTS[name]() for name in chosen}
    Path(os.environ["LAB_OUT"], "routes.json").write_text(json.dumps(found), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
