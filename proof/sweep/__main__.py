# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.sweep``: run the sweep in a guest, as root."""

from __future__ import annotations

import argparse
import sys
import time

from proof.sweep.pairs import choose
from proof.sweep.rows import parse
from proof.sweep.sweeper import run_all


def main(argv: list[str]) -> int:
    """Run a seed's rows, or the given ones; return 1 if a row fails."""
    parser = argparse.ArgumentParser(
        prog="python -m proof.sweep",
        description="Test combinations of devices, readers and senders with real packets.",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the rows (1)")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every Nth row from K on")
    parser.add_argument("--row", action="append", metavar="ROW", help="a row; may be repeated")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="repeat each row (1)")
    parser.add_argument(
        "--driver",
        choices=("nodrop", "stock", "both"),
        default="both",
        help="both: nodrop's, then stock's for rows to compare (both)",
    )
    parser.add_argument("--most", type=int, default=5, metavar="N", help="failures to stop at (5)")
    given = parser.parse_args(argv)
    try:
        rows = [parse(text) for text in given.row or ()]
        first, parts = (int(word) for word in given.part.split("/"))
    except ValueError as error:
        parser.error(str(error))
    rows = rows or choose(given.seed)[first - 1 :: parts]
    drivers = ("nodrop", "stock") if given.driver == "both" else (given.driver,)
    started = time.monotonic()
    failed = run_all(rows * given.times, drivers, lambda line: print(line, flush=True), given.most)
    print(f"{len(rows)} rows, {failed} failed, {time.monotonic() - started:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
