# SPDX-License-Identifier: GPL-2.0-only
"""What the parts of the tunnels' series save: from the raw data to a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from nodrop.report.stats import interval

HEAD = ("TUNNEL", "BELOW", "SENDERS", "PARTS", "CYCLES/PACKET", "SAVED", "THROUGHPUT", "95 %")
NUMBERS = frozenset({"CYCLES/PACKET", "SAVED", "THROUGHPUT"})
_CASE = ("type", "lower", "senders", "parts", "shared")


def summarise(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a summary of each case, in the order in which they were measured.

    A boot's figure is the median of its pairs; a case's is the median of its boots. ``cycles`` is
    what a packet costs without the parts, ``saved`` what they save of it, ``ratio`` how many times
    as many packets a CPU sends with them.
    """
    cases = list(dict.fromkeys(tuple(line[name] for name in _CASE) for line in lines))
    found = []
    for case in cases:
        of = [line["result"] for line in lines if tuple(line[name] for name in _CASE) == case]
        found.append(
            {
                **dict(zip(_CASE, case, strict=True)),
                "boots": len(of),
                "pairs": sum(result["pairs"] for result in of),
                "packets": sum(result["packets"] for result in of),
                "refused": sum(result["refused"] for result in of),
                "cycles": median([result["off"] for result in of]),
                "saved": median([result["saved"] for result in of]),
                "ratio": interval([result["ratio"] for result in of]).to_data(),
            }
        )
    return found


def rows(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of the table, a row for each case."""
    return [
        (
            one["type"],
            one["lower"],
            f"{one['senders']}, one route" if one["shared"] else str(one["senders"]),
            one["parts"],
            f"{one['cycles']:,.0f}",
            f"{one['saved']:,.0f}",
            f"{one['ratio']['median']:.3f}",
            f"{one['ratio']['low']:.3f} to {one['ratio']['high']:.3f}",
        )
        for one in summaries
    ]


def markdown(summaries: Sequence[dict[str, Any]], meta: dict[str, Any]) -> str:
    """Return the table as Markdown, with a line that says where it was measured."""
    here = meta["machine"]
    lines = [
        f"| {' | '.join(name.lower() for name in HEAD)} |",
        "|---|---|---|---|---:|---:|---:|---|",
        *(f"| {' | '.join(row)} |" for row in rows(summaries)),
        "",
        f"{meta['boots']} boots, Linux {meta['kernel']['release']} in user mode, {here['cpu']}, "
        f"{here['cpus']} CPUs, {meta['time']}.",
    ]
    return "\n".join(lines) + "\n"
