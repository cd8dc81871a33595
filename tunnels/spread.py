# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m tunnels.spread [--fault NAME] TYPE ...``: the routes by which flows leave.

Next hops are chosen by a hash of the flow, rules by its ports: a cache that knows neither must not
give one flow another's route. ``spread.json`` in LAB_OUT has, for each type, choice and TOS, how
many frames went to each gateway.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from guestlib.environment import prepare_system, set_sysctls
from guestlib.process import ip_batch
from tunnels import faults
from tunnels.cases import PacketCase
from tunnels.links import KINDS, THERE4, THERE6, LinkKind
from tunnels.packets import Probe, flows
from tunnels.topology import BELOW, BEYOND, FAR, NAME, packet_socket, prepare, take, tunnel

FLOWS = 32
"""So many that they take both of two routes."""
TOS = (0x00, 0x01, 0x10)
"""0x01 is ECN's ECT(1), and also how a tunnel asks for an inherited TOS."""
QUIET_S = 0.1
MACS = ("02:00:00:00:04:03", "02:00:00:00:04:04")
GATES = {False: ("198.18.4.3", "198.18.4.4"), True: ("fd00:4::3", "fd00:4::4")}
_POLICIES = ("net/ipv4/fib_multipath_hash_policy", "net/ipv6/fib_multipath_hash_policy")
_SPORTS = "1-46000"
"""About half of the ports from which UDP tunnels choose."""


def hash_ports() -> None:
    """Let the hash that chooses next hops include ports."""
    set_sysctls(dict.fromkeys(_POLICIES, "1"))


def gates_known() -> None:
    """Give the gateways permanent neighbours."""
    lines = [
        f"neigh replace {gate} lladdr {mac} dev {BELOW} nud permanent"
        for gates in GATES.values()
        for gate, mac in zip(gates, MACS, strict=True)
    ]
    ip_batch(lines)


def _choices(kind: LinkKind) -> list[PacketCase]:
    """Return what lets flows have different routes."""
    ip = f"ip {'-6' if kind.outer6 else '-4'}"
    full = f"{THERE6}/128" if kind.outer6 else f"{THERE4}/32"
    first, second = (f"via {gate} dev {BELOW}" for gate in GATES[kind.outer6])
    hops = f"nexthop {first} nexthop {second}"
    chosen = f"iif lo ipproto udp sport {_SPORTS} table 77"
    make = f"{ip} route add {full} {first} table 77\n{ip} route add {full} {second}\n"
    revert = f"{ip} rule del {chosen}\n{ip} route del {full}\n{ip} route flush table 77"
    return [
        PacketCase("next hops", f"{ip} route add {full} {hops}", f"{ip} route del {full}"),
        PacketCase("rule", f"{make}{ip} rule add {chosen}", revert),
    ]


def transmit(probes: Iterable[Probe], mark: int = 0) -> list[bytes]:
    """Send packets; return the frames that arrive below."""
    with (
        packet_socket(NAME, mark=mark) as source,
        packet_socket(BEYOND, FAR, receive=True) as sink,
    ):
        for probe in probes:
            probe.send(source, NAME)
        (frames,) = take([sink], QUIET_S)
    return [frame for _, frame in frames]


def gateway(frame: bytes) -> str:
    """Return the MAC address that a frame is for."""
    return frame[:6].hex(":")


def spread(kind: LinkKind) -> dict[str, dict[str, int]]:
    """Return, for each choice and TOS, the frames of each gateway."""
    found = {}
    prepare()
    with tunnel(kind):
        hash_ports()
        gates_known()
        for case in _choices(kind):
            for tos in TOS:
                case.make()
                took = Counter(map(gateway, transmit(flows(kind, FLOWS, tos), kind.mark)))
                found[f"{case.name}, tos {tos:#x}"] = {mac: took[mac] for mac in MACS if took[mac]}
                case.revert()
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tunnels.spread")
    parser.add_argument("--fault", choices=faults.FAULTS)
    parser.add_argument("types", nargs="+", choices=KINDS, metavar="TYPE")
    options = parser.parse_args(argv)
    prepare_system()
    if options.fault:
        faults.make(options.fault)
    found = {name: spread(KINDS[name]) for name in options.types}
    Path(os.environ["LAB_OUT"], "spread.json").write_text(json.dumps(found), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
