# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.torture.table FILE...``: what was survived, of several results."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def runs(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table: for each kernel the sums, and its seeds."""
    lines = [
        "| kernel | runs | events | packets sent | delivered | violations | seeds |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for label in sorted({result["label"] for result in results}):
        of = [result for result in results if result["label"] == label]
        sums: Counter[str] = Counter()
        for result in of:
            sums.update({name: result["packets"].get(name, 0) for name in ("sent", "delivered")})
            sums.update(events=result["events"], violations=int(bool(result["violation"])))
        seeds = ", ".join(str(result["seed"]) for result in of)
        lines.append(
            f"| {label or 'unknown'} | {len(of)} | {sums['events']:,} | {sums['sent']:,} | "
            f"{sums['delivered']:,} | {sums['violations']} | {seeds} |"
        )
    return lines


def survived(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table: how often each kind of reader survived each kind of event."""
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        for reader, kinds in result["survived"].items():
            counts.update({(kind, reader): count for kind, count in kinds.items()})
    readers = sorted({reader for _, reader in counts})
    lines = [f"| event | {' | '.join(readers)} |", f"|---|{'---:|' * len(readers)}"]
    for kind in sorted({kind for kind, _ in counts}):
        numbers = (f"{counts[kind, reader]:,}" for reader in readers)
        lines.append(f"| {kind} | {' | '.join(numbers)} |")
    return lines


def main(paths: list[str]) -> int:
    """Print both tables."""
    results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    print("\n".join([*runs(results), "", *survived(results)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
