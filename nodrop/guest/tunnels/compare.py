# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.tunnels.compare``: what a part of the series saves, in cycles."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from nodrop.guest.command import tool
from nodrop.guest.environment import Environment
from nodrop.guest.failure import GuestError
from nodrop.guest.kmeter import DEVICE, Meter, Sample, pairs
from nodrop.guest.runner import prepare_system
from nodrop.guest.tunnels.kinds import KINDS, frame
from nodrop.guest.tunnels.topology import Lower, share_route, tunnel

SYMBOL = "tunnel_variant"
FEATURES = {"noref": 1, "noid": 2, "straight": 4, "none": 0}
SETTING = Path("/sys/module/ip_tunnel_core/parameters/features")
SHARED_MTU = 1400
"""Bytes; the packets that are sent are smaller."""
_WARM_SLOTS = 100


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="tunnel-compare", description=__doc__)
    parser.add_argument("--type", choices=tuple(KINDS), default="vxlan", help="of tunnel (vxlan)")
    parser.add_argument("--lower", choices=[str(kind) for kind in Lower], default="dummy")
    parser.add_argument(
        "--features", default="noref", metavar="F,...", help=f"of {', '.join(FEATURES)} (noref)"
    )
    parser.add_argument("--slots", type=int, default=4000, metavar="N", help="of 1.6 ms (4000)")
    parser.add_argument("--cpus", default="0", metavar="N,...", help="a sender on each (0)")
    parser.add_argument(
        "--shared", action="store_true", help="a PMTU exception makes senders share a route"
    )
    return parser.parse_args(argv)


def measure(given: argparse.Namespace) -> list[Sample]:
    """Set the tunnel up and let the meter run."""
    kind = KINDS[given.type]
    cpus = [int(cpu) for cpu in given.cpus.split(",")]
    features = sum(FEATURES[name] for name in given.features.split(","))
    if features:
        SETTING.write_text(str(features))
    symbol = SYMBOL if SETTING.exists() else ""
    with tunnel(kind, Lower(given.lower)) as ifindex, Meter() as meter:
        if given.shared:
            share_route(SHARED_MTU)
        for slots in (_WARM_SLOTS, given.slots):
            found = meter.run(ifindex, frame(kind), symbol=symbol, cpus=cpus, slots=slots)
    return found


def main(argv: list[str]) -> int:
    """Measure, and tell."""
    given = parse(argv)
    environment = Environment.from_environ()
    prepare_system()
    try:
        if not Path(DEVICE).exists():
            tool(["insmod", str(environment.modules / "kmeter.ko")])
        samples = measure(given)
    except (GuestError, OSError) as error:
        print(f"tunnel-compare: {error}", file=sys.stderr)
        return 2
    both = list(pairs(samples))
    if not both:
        print(
            "tunnel-compare: no four slots in a row were measured; is the host busy?",
            file=sys.stderr,
        )
        return 2
    result = {
        **vars(given),
        "packets": sum(sample.packets for sample in samples),
        "refused": sum(sample.refused for sample in samples),
        "pairs": both,
    }
    name = f"compare-{given.type}-{given.lower}-{given.features}-{given.cpus}.json"
    (environment.out / name).write_text(json.dumps(result) + "\n", encoding="utf-8")
    off, on = (median(pair[variant] for pair in both) for variant in (0, 1))
    saved = [pair[0] - pair[1] for pair in both]
    told = {
        **{key: value for key, value in result.items() if key != "pairs"},
        "pairs": len(both),
        "off": round(off, 1),
        "on": round(on, 1),
        "saved": round(median(saved), 2),
        "ratio": round(median(pair[0] / pair[1] for pair in both), 4),
    }
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
