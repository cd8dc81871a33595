# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.torture.table FILE...``: what was survived, of several results.

A ``.json`` is the torture's; any other file is what tests/selftests/fault_* have printed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAULT = "# survived "
"""Before the words of a fault, in the output of a test (tests/selftests/faults.py)."""


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
        seeds = ", ".join(_seed(result) for result in of)
        lines.append(
            f"| {label or 'unknown'} | {len(of)} | {sums['events']:,} | {sums['sent']:,} | "
            f"{sums['delivered']:,} | {sums['violations']} | {seeds} |"
        )
    return lines


def _seed(result: dict[str, Any]) -> str:
    return f"{result['seed']}{'' if result.get('ended', True) else ' (cut short)'}"


def survived(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table: how often each kind of reader survived each kind of event."""
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        for reader, kinds in result["survived"].items():
            counts.update({(kind, reader): count for kind, count in kinds.items()})
    return _by_reader("event", counts, "0")


def faults(output: str) -> list[str]:
    """Return the lines of a table: how often each kind of reader survived each injected fault."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in output.splitlines():
        if line.startswith(FAULT):
            words = json.loads(line.removeprefix(FAULT))
            counts[words["fault"], words["reader"] or "no reader"] += words["count"]
    return _by_reader("fault", counts, "")


def _by_reader(what: str, counts: Counter[tuple[str, str]], never: str) -> list[str]:
    """Return the lines of a table with a column for each reader."""
    readers = sorted({reader for _, reader in counts})
    lines = [f"| {what} | {' | '.join(readers)} |", f"|---|{'---:|' * len(readers)}"]
    for kind in sorted({kind for kind, _ in counts}):
        numbers = (
            f"{counts[kind, reader]:,}" if counts[kind, reader] else never for reader in readers
        )
        lines.append(f"| {kind} | {' | '.join(numbers)} |")
    return lines


def main(paths: list[str]) -> int:
    """Print the tables of what there is."""
    texts = {path: Path(path).read_text(encoding="utf-8") for path in paths}
    results = [json.loads(text) for path, text in texts.items() if path.endswith(".json")]
    output = "\n".join(text for path, text in texts.items() if not path.endswith(".json"))
    tables = [runs(results), survived(results)] if results else []
    if output:
        tables.append(faults(output))
    print("\n\n".join("\n".join(lines) for lines in tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
