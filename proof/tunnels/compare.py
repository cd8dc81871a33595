# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.tunnels.compare``: the cycles that a part of the series saves."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from guestlib.environment import Environment
from guestlib.failure import GuestError
from guestlib.prepare import prepare_system
from guestlib.process import tool
from proof.tunnels.kmeter import DEVICE, Meter, Sample, pairs
from proof.tunnels.links import KINDS
from proof.tunnels.packets import frame
from proof.tunnels.topology import share_route, tunnel

SYMBOL = "tunnel_variant"
FEATURES = {"references": 1, "id": 2, "nothing": 0}
_NAMES = ", ".join(FEATURES)
SETTING = Path("/sys/module/ip_tunnel_core/parameters/features")
SHARED_MTU = 1400
"""Bytes; the packets sent are smaller."""
_WARM_SLOTS = 100


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tunnel-compare", description=__doc__)
    parser.add_argument("--type", choices=tuple(KINDS), default="vxlan", help="of tunnel (vxlan)")
    what = f"of {_NAMES} (references)"
    parser.add_argument("--features", default="references", metavar="F,...", help=what)
    parser.add_argument("--slots", type=int, default=4000, metavar="N", help="of 1.6 ms (4000)")
    parser.add_argument("--cpus", default="0", metavar="N,...", help="a sender on each (0)")
    shared = "make senders share a route, by a PMTU exception"
    parser.add_argument("--shared", action="store_true", help=shared)
    return parser.parse_args(argv)


def measure(given: argparse.Namespace) -> list[Sample]:
    """Set up the tunnel and run the meter."""
    kind = KINDS[given.type]
    cpus = [int(cpu) for cpu in given.cpus.split(",")]
    features = sum(FEATURES[name] for name in given.features.split(","))
    if features:
        SETTING.write_text(str(features))
    symbol = SYMBOL if SETTING.exists() else ""
    with tunnel(kind) as ifindex, Meter() as meter:
        if given.shared:
            share_route(SHARED_MTU)
        for slots in (_WARM_SLOTS, given.slots):
            found = meter.run(ifindex, frame(kind), symbol=symbol, cpus=cpus, slots=slots)
    return found


def main(argv: list[str]) -> int:
    """Measure; print the medians as JSON: cycles a packet with the features off and on."""
    given = _arguments(argv)
    prepare_system()
    try:
        if not Path(DEVICE).exists():
            tool(["insmod", str(Environment.from_environ().modules / "kmeter.ko")])
        samples = measure(given)
        if not (both := list(pairs(samples))):
            raise GuestError("no sender has four consecutive slots; is the host busy?")
    except (GuestError, OSError) as error:
        print(f"tunnel-compare: {error}", file=sys.stderr)
        return 2
    off, on = (median(pair[variant] for pair in both) for variant in (0, 1))
    summary = {
        **vars(given),
        "packets": sum(sample.packets for sample in samples),
        "refused": sum(sample.refused for sample in samples),
        "pairs": len(both),
        "off": round(off, 1),
        "on": round(on, 1),
        "saved": round(median(pair[0] - pair[1] for pair in both), 2),
        "ratio": round(median(pair[0] / pair[1] for pair in both), 4),
    }
    print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
