# SPDX-License-Identifier: GPL-2.0-only
"""What a class of traffic got of its due, by case: a point for each driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from nodrop.report.look import COLOURS, FAINT, LABELS, MARKERS
from nodrop.report.rows import case_words

METRIC = "first_due_percent"
TITLE = "What the first class got of its due"
WIDTH = 0.22


def draw(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str]) -> None:
    """Draw the medians with their intervals, beside the line of what is due."""
    cases = summary["cases"]
    tallest = 100.0
    axes.axhline(100, color=FAINT, linewidth=1.2, zorder=0)
    for nth, variant in enumerate(variants):
        offset = (nth - (len(variants) - 1) / 2) * WIDTH
        found = [
            (place + offset, case["variants"][variant][METRIC])
            for place, case in enumerate(cases.values())
            if METRIC in case["variants"].get(variant, {})
        ]
        data = [entry for _, entry in found]
        axes.errorbar(
            [place for place, _ in found],
            [entry["median"] for entry in data],
            yerr=[
                [entry["median"] - entry["low"] for entry in data],
                [entry["high"] - entry["median"] for entry in data],
            ],
            fmt=MARKERS[variant],
            markersize=6,
            capsize=3,
            color=COLOURS[variant],
            label=LABELS[variant],
        )
        tallest = max([tallest, *(entry["median"] for entry in data)])
    axes.set_ylim(0, 1.15 * tallest)
    axes.set_xlim(-0.5, len(cases) - 0.5)
    axes.set_ylabel("%, interval")
    axes.set_xticks(
        range(len(cases)), ["\n".join(reversed(case_words(name))) for name in cases], fontsize=7
    )
