# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.tunnels.torture``: in a guest, as root."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from nodrop.guest.failure import GuestError
from nodrop.guest.runner import prepare_system
from nodrop.guest.tunnels.torture.chaos import KINDS
from nodrop.guest.tunnels.torture.run import Settings, Torture, replay
from nodrop.guest.tunnels.torture.victims import VICTIMS


def parse(argv: list[str]) -> list[Settings]:
    """Parse the command line; one run for each kind of tunnel."""
    parser = argparse.ArgumentParser(
        prog="tunnel-torture",
        description="Send through a tunnel while everything below it changes.",
    )
    parser.add_argument(
        "--type", default="vxlan", metavar="K,...", help=f"of {', '.join(VICTIMS)}, or all (vxlan)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan (1)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="each (20)")
    parser.add_argument("--first-round", type=int, default=0, metavar="N", help="begin with it (0)")
    parser.add_argument(
        "--events", default="", metavar="E,...", help=f"only these: {', '.join(KINDS)} (all)"
    )
    given = parser.parse_args(argv)
    kinds = list(VICTIMS) if given.type == "all" else given.type.split(",")
    only = frozenset(word for word in given.events.split(",") if word)
    if unknown := [*(set(kinds) - set(VICTIMS)), *(only - set(KINDS))]:
        parser.error(f"unknown: {', '.join(unknown)}")
    return [Settings(kind, given.seed, given.seconds, only, given.first_round) for kind in kinds]


def main(argv: list[str]) -> int:
    """Run it; 1 when an invariant does not hold, 2 when it cannot be run."""
    wanted = parse(argv)
    prepare_system()
    for settings in wanted:
        torture = Torture(settings, lambda line: print(f"# {line}", flush=True))
        try:
            result = torture.run()
        except (GuestError, OSError) as error:
            print(f"tunnel-torture: {settings.kind}: {error}", file=sys.stderr, flush=True)
            return 2
        text = json.dumps(result.to_json())
        name = f"tunnel-torture-{settings.kind}-{settings.seed}.json"
        (Path(os.environ["NODROP_OUT"]) / name).write_text(text + "\n", encoding="utf-8")
        print(json.dumps({**result.to_json(), "look": ""}), flush=True)
        if result.violation:
            print(f"VIOLATION at event {result.last_event}: {result.violation}")
            print(f"again: {replay(result, settings)}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
