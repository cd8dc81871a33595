# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.report.second FILE...``: what a fast guest gets beside a slow one.

Reads what nodrop.guest.taps.second has written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodrop.report.stats import interval, median

HEAD = (
    *("way", "reader", "sockets", "driver", "alone, packets/s", "beside / alone"),
    *("to the slow one: sent", "read", "lost", "held at the end"),
)
_CASE = ("way", "reader", "sockets", "rate", "driver")


def ratios(lines: Sequence[dict[str, Any]]) -> list[float]:
    """Return, for each repetition, what the fast guest got beside the slow one of what it gets."""
    found = []
    for repetition in sorted({line["repetition"] for line in lines}):
        of = [line for line in lines if line["repetition"] == repetition]
        alone = [line["fast_pps"] for line in of if not line["beside"]]
        beside = [line["fast_pps"] for line in of if line["beside"]]
        if alone and beside:
            found.append(sum(beside) / len(beside) / (sum(alone) / len(alone)))
    return found


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table, a row for each case."""
    rows = [
        f"| {' | '.join(HEAD)} |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case in dict.fromkeys(tuple(line[name] for name in _CASE) for line in lines):
        of = [line for line in lines if tuple(line[name] for name in _CASE) == case]
        way, reader, sockets, rate, driver = case
        alone = median([line["fast_pps"] for line in of if not line["beside"]])
        beside = [line for line in of if line["beside"]]
        ratio = interval(ratios(of))
        sums = [
            f"{sum(line[name] for line in beside):,}"
            for name in ("slow_sent", "slow_read", "slow_dropped")
        ]
        held = median([line["slow_held"] for line in beside])
        each = f" at {rate}/s" if rate else ""
        rows.append(
            f"| {way} | {reader} | {sockets}{each} | {driver} | {alone:,.0f} | "
            f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] | "
            f"{' | '.join(sums)} | {held:.0f} |"
        )
    return rows


def main(paths: Sequence[str]) -> int:
    """Print the table of what there is."""
    texts = [Path(path).read_text(encoding="utf-8") for path in paths]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    print("\n".join(table(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
