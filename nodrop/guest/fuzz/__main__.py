# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.fuzz``: in a guest, as root; the host's side is nodrop.lab.fuzz."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz.run import Fuzz, Settings
from nodrop.guest.fuzz.state import MARK, State

FOUND, FAILED = 1, 2


def parse(argv: list[str]) -> Settings:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="nodrop-fuzz", description="Run made-up programs of system calls (docs/fuzzing.md)."
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="so many at most")
    parser.add_argument("--blind", action="store_true", help="learn nothing: same seed, same run")
    parser.add_argument("--replay", type=Path, nargs="*", default=(), metavar="FILE")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="each of these (1)")
    parser.add_argument("--guard-ms", type=int, default=0, metavar="N", help="0: never (0)")
    parser.add_argument("--trace", action="store_true", help="with nodrop's tracepoints")
    parser.add_argument("--stock-vhost", action="store_true", help="the kernel's own vhost_net")
    parser.add_argument("--guest", type=int, default=0, metavar="N", help="its number (0)")
    given = parser.parse_args(argv)
    return Settings(**vars(given) | {"replay": tuple(given.replay)})


def main(argv: list[str]) -> int:
    """Run it; 1 when something was found, 2 when it cannot be run."""

    def say(state: State) -> None:
        print(MARK + json.dumps(state.figures()), flush=True)

    try:
        state = Fuzz(parse(argv), say).run()
    except (GuestError, OSError) as error:
        print(f"nodrop-fuzz: {error}", file=sys.stderr, flush=True)
        return FAILED
    if state.finding:
        print(f"FOUND {state.finding.kind}: {state.finding.line}\n{state.finding.text}", flush=True)
        return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
