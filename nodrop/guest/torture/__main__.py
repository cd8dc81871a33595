# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.torture``: in a guest, as root."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from nodrop.guest.failure import GuestError
from nodrop.guest.plan import Variant
from nodrop.guest.torture.plan import Mode
from nodrop.guest.torture.result import Result
from nodrop.guest.torture.run import Settings, Torture, replay

WITHOUT_END_S = 10**9
CALMER = 10
"""Of a run for packets."""


def parse(argv: list[str]) -> Settings:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="nodrop-torture", description="Punish TUN and TAP devices and account for all packets."
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan (1)")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long (20)")
    parser.add_argument("--events", type=int, default=0, metavar="N", help="until so many")
    parser.add_argument("--packets", type=int, default=0, metavar="N", help="until so many")
    parser.add_argument(
        "--until-event", type=int, default=0, metavar="K", help="the last one, by its number"
    )
    parser.add_argument("--first-round", type=int, default=0, metavar="N", help="begin with it (0)")
    parser.add_argument(
        "--mode", default="", metavar="M,...", help=f"rounds of these: {', '.join(Mode)} (all)"
    )
    parser.add_argument(
        "--flood", action="store_true", help="many packets, few events (as many of both as can be)"
    )
    parser.add_argument(
        "--calmer",
        type=int,
        metavar="N",
        help=f"N times as long between events (1; with --flood {CALMER})",
    )
    parser.add_argument(
        "--driver", choices=[str(v) for v in Variant], default="nodrop", help="whose (nodrop)"
    )
    parser.add_argument("--label", default="", metavar="TEXT", help="goes into the result")
    parser.add_argument(
        "--source", default="", metavar="DIGEST", help="of what runs, goes into the result"
    )
    given = parser.parse_args(argv)
    try:
        modes = frozenset(Mode(word) for word in given.mode.split(",") if word)
    except ValueError as error:
        parser.error(str(error))
    bounded = given.events or given.packets or given.until_event
    return Settings(
        seed=given.seed,
        seconds=given.seconds or (WITHOUT_END_S if bounded else 20.0),
        events=given.events,
        packets=given.packets,
        until=given.until_event,
        first_round=given.first_round,
        modes=modes,
        flood=given.flood,
        calmer=given.calmer or (CALMER if given.flood else 1),
        driver=Variant(given.driver),
        label=given.label,
        source=given.source,
    )


def keep(settings: Settings, result: Result) -> None:
    """Write down what happened so far; whoever looks sees all of it, or what was there before."""
    place = Path(os.environ["NODROP_OUT"]) / f"torture-{settings.seed}.json"
    new = place.with_suffix(".new")
    new.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    new.replace(place)


def tell(settings: Settings, result: Result) -> None:
    """Print what happened, and keep it."""
    keep(settings, result)
    if result.violation:
        print("The last events:")
        for happened in result.last:
            print(f"  {happened}")
        print(f"VIOLATION at event {result.last_event}, seed {settings.seed}: {result.violation}")
        print(f"round: {result.round and result.round.number} {result.to_json()['round']}")
        print(f"again: {replay(settings, result)}")
    print(json.dumps(result.to_json()), flush=True)


def main(argv: list[str]) -> int:
    """Run it; 1 when an invariant does not hold, 2 when it cannot be run."""
    settings = parse(argv)
    torture = Torture(
        settings,
        lambda line: print(f"# {line}", flush=True),
        lambda result: keep(settings, result),
    )
    torture.result.argv = argv
    try:
        result = torture.run()
    except (GuestError, OSError) as error:
        print(f"nodrop-torture: {error}", file=sys.stderr, flush=True)
        if torture.result.violation:
            tell(settings, torture.result)
        return 1 if torture.result.violation else 2
    tell(settings, result)
    return 1 if result.violation else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
