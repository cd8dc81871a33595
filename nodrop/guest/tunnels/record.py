# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m nodrop.guest.tunnels.record --type vxlan``: all that a tunnel sends, byte for byte.

Sends the same packets in the same order on every kernel. What left the device below, what came
back and what was counted goes to ``record-TYPE.json`` in NODROP_OUT, for
``nodrop.guest.tunnels.same``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from nodrop.guest.failure import GuestError
from nodrop.guest.runner import prepare_system
from nodrop.guest.tunnels import bearers, local, ways
from nodrop.guest.tunnels.kinds import BEARERS, KINDS
from nodrop.guest.tunnels.packets import fitting, large
from nodrop.guest.tunnels.stage import Stage, far_counters, stage
from nodrop.guest.tunnels.topology import NAME

FEATURES = Path("/sys/module/ip_tunnel_core/parameters/features")
TALL = 3000
"""MTU of a tunnel's device whose packets do not fit into the one below."""
_IPV6_MINIMUM = 1280


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="tunnel-record", description=__doc__)
    parser.add_argument(
        "--type", choices=(*KINDS, *BEARERS), default="vxlan", help="of tunnel (vxlan)"
    )
    parser.add_argument(
        "--features", type=int, default=-1, help="of a kernel for A/B: tunnel_variant's bits"
    )
    return parser.parse_args(argv)


def _device_mtu() -> int:
    return int(Path(f"/sys/class/net/{NAME}/mtu").read_text(encoding="ascii"))


def record(on: Stage) -> None:
    """Send everything."""
    mtu = _device_mtu()
    for shot in fitting(on.kind, min(mtu, 1500)):
        on.step(f"put {shot.name}", [on.inject.send(shot)])
    local.sockets(on, mtu)
    ways.offloads(on)
    ways.forwarded(on, mtu)
    ways.tall(on, TALL)
    for shot in large(on.kind, max(min(mtu, 1500), _IPV6_MINIMUM)):
        on.step(f"tall {shot.name}", [on.inject.send(shot)])
    local.sockets(on, mtu, prefix="tall ")
    ways.forwarded(on, mtu, prefix="tall ")
    ways.below(on)


def _recorded(name: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    if name in BEARERS:
        return bearers.record(name), {}
    with stage(KINDS[name]) as made:
        before = far_counters()
        record(made)
        far = {key: value - before[key] for key, value in far_counters().items()}
    return made.steps, far


def main(argv: list[str]) -> int:
    """Record, and tell how much."""
    given = parse(argv)
    out = Path(os.environ["NODROP_OUT"])
    prepare_system()
    if given.features >= 0:
        FEATURES.write_text(f"{given.features}\n", encoding="ascii")
    try:
        steps, far = _recorded(given.type)
    except (GuestError, OSError) as error:
        print(f"tunnel-record: {error}", file=sys.stderr)
        return 2
    result = {"type": given.type, "steps": steps, "far": far}
    path = out / f"record-{given.type}.json"
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    frames = sum(len(step["out"]) for step in steps)
    told = {"type": given.type, "steps": len(steps), "frames": frames, **far}
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
