# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.report.taps FILE...``: tables of the results of bench.guest.taps and second.

For floods (``--drivers stock nodrop``): packets delivered with nodrop's driver, relative to
stock's. For bench.guest.second: a fast guest's throughput beside a slow one. gzip is supported.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import files
from bench.report.stats import interval

Row = dict[str, Any]
HEAD = (
    "| way | reader | ring | sockets | pairs | delivered, ratio | dropped (stock; nodrop) |",
    "|---|---|---:|---:|---:|---:|---:|",
)
SECOND_HEAD = (
    *("way", "reader", "sockets", "driver", "alone, packets/s", "beside / alone"),
    *("to the slow one: sent", "read", "lost", "held at the end"),
)
_CASE = ("way", "reader", "sockets", "rate", "driver")


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the table's lines: medians of pairs with their intervals; dropped packets per run."""
    cases: dict[tuple[Any, ...], dict[int, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        case = tuple(row[name] for name in ("way", "reader", "ring", "sockets"))
        cases[case][row["pair"]][row["driver"]] = row
    yield from HEAD
    for case, pairs in cases.items():
        whole = [(pair["stock"], pair["nodrop"]) for pair in pairs.values() if len(pair) == 2]
        ratio = interval([ours["delivered"] / theirs["delivered"] for theirs, ours in whole])
        dropped = (median([row["lost"] for row in column]) for column in zip(*whole, strict=True))
        found = f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        words = " | ".join(map(str, case))
        yield f"| {words} | {len(whole)} | {found} | {'; '.join(f'{n:.0f}' for n in dropped)} |"


def ratios(lines: Sequence[Row]) -> list[float]:
    """Return, for each repetition, the fast guest's rate beside the slow one, relative to alone."""
    found = []
    for repetition in sorted({line["repetition"] for line in lines}):
        of = [line for line in lines if line["repetition"] == repetition]
        alone = [line["fast_pps"] for line in of if not line["beside"]]
        beside = [line["fast_pps"] for line in of if line["beside"]]
        if alone and beside:
            found.append(sum(beside) / len(beside) / (sum(alone) / len(alone)))
    return found


def second_table(lines: Sequence[Row]) -> list[str]:
    """Return the lines of a table with a row for each case."""
    rows = [
        f"| {' | '.join(SECOND_HEAD)} |",
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


def main(argv: Sequence[str]) -> int:
    """Print the tables of the files."""
    texts = [files.read_text(Path(word.removesuffix(".gz"))) for word in argv]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    floods = [row for row in rows if "beside" not in row]
    beside = [row for row in rows if "beside" in row]
    print(*(table(floods) if floods else ()), sep="\n")
    print(*(second_table(beside) if beside else ()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
