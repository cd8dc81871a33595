# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.fuzz``: in a guest, as root; the host's side is nodrop.lab.fuzz."""

from __future__ import annotations

import argparse
import sys

from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz.run import KINDS, Fuzz, State

FOUND, FAILED = 1, 2


def main(argv: list[str]) -> int:
    """Run it; 1 when something was found, 2 when it cannot be run."""
    parser = argparse.ArgumentParser(
        prog="nodrop-fuzz", description="Run made-up programs of system calls (docs/fuzzing.md)."
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the programs (1)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="program (0)")
    parser.add_argument("--programs", type=int, default=0, metavar="N", help="so many at most")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (60)")
    parser.add_argument("--kind", type=int, default=0, choices=range(len(KINDS)), help="(0)")
    given = parser.parse_args(argv)

    def say(state: State) -> None:
        print(state, flush=True)

    try:
        state = Fuzz(KINDS[given.kind], say).run(
            given.seed, first=given.first, programs=given.programs, seconds=given.seconds
        )
    except (GuestError, OSError) as error:
        print(f"nodrop-fuzz: {error}", file=sys.stderr, flush=True)
        return FAILED
    if found := state.finding:
        print(f"FOUND {found.kind}: {found.line}\n{found.text}", flush=True)
        return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
