# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.report.floods FILE``: what a tap delivered with nodrop's driver over stock's.

Reads what ``python -m nodrop.guest.taps --drivers stock nodrop`` wrote; gzip is fine, too.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nodrop.report.stats import interval, median

Row = dict[str, Any]
HEAD = (
    "| way | reader | ring | sockets | pairs | delivered, ratio | dropped (stock; nodrop) |",
    "|---|---|---:|---:|---:|---:|---:|",
)


def read(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.splitlines()]


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Give the table's lines: medians of pairs, with their intervals; packets dropped a run."""
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


def main(argv: list[str]) -> int:
    """Print the table of the files."""
    for line in table(row for word in argv for row in read(Path(word))):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
