# SPDX-License-Identifier: GPL-2.0-only
"""A rate relative to stock's, by case: a point with its interval for each driver.

The axis is as long as the data need, and as long above 1 as below, so that twice and half look
alike, but where ratios are so large that it would be empty on one side. A single wide interval does
not flatten all others, but is cut, and marked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from nodrop.report.look import COLOURS, LABELS, MARKERS, case_labels, errors, offsets

LEAST = 1.25
"""The axis goes at least from 1 / LEAST to LEAST: smaller differences shall not look large."""
MOST = 4.0
"""No interval makes the axis longer than that; a median does."""
MARGIN = 1.06
FAR_MARGIN = 0.05
"""Of an axis beyond MOST, as a part of its own length."""
TICKS = (
    (1.3, (0.8, 0.9, 1, 1.1, 1.25)),
    (2.1, (0.5, 0.6, 0.8, 1, 1.25, 1.6, 2)),
    (5.0, (0.25, 0.5, 0.75, 1, 1.5, 2, 4)),
)
"""Where an axis that ends before a limit may have ticks; a longer one has powers of 4."""

Numbers = Mapping[str, float]


def limits(data: Sequence[Numbers]) -> tuple[float, float]:
    """Return where the axis ends below and above."""
    above, below = (_end(data, upwards) for upwards in (True, False))
    if max(above, below) <= MARGIN * MOST:
        above = below = max(above, below)
    return 1 / below, above


def _end(data: Sequence[Numbers], upwards: bool) -> float:
    """Return how far from 1 the axis ends on one side."""

    def far(ratio: float) -> float:
        return _distance(ratio) if (ratio > 1) == upwards else 1.0

    medians = [far(entry["median"]) for entry in data]
    ends = [min(far(entry[name]), MOST) for entry in data for name in ("low", "high")]
    farthest = max([1.0, *medians, *ends])
    far_end: float = farthest ** (1 + FAR_MARGIN) if farthest > MOST else MARGIN * farthest
    return max(LEAST, far_end)


def _distance(ratio: float) -> float:
    """Return how many times 1 a ratio is, or 1 is of it; of 0, which has no place, 1."""
    return max(ratio, 1 / ratio) if ratio > 0 else 1.0


def ticks(bottom: float, top: float) -> list[float]:
    """Return the ticks of an axis that ends there."""
    end = max(top, 1 / bottom)
    for before, found in TICKS:
        if end < before:
            return [tick for tick in found if bottom <= tick <= top]
    powers = math.floor(math.log(end, 4))
    far = [4.0**power for power in range(-powers, powers + 1)]
    return [tick for tick in far if bottom <= tick <= top]


def draw(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str], metric: str) -> None:
    """Draw all cases, and last what they are together."""
    cases = list(summary["cases"].values())
    labels = case_labels(summary)
    if len(cases) > 1:
        cases = [*cases, summary]
        labels = [*labels, "together"]
    compared = [variant for variant in variants if variant != "stock"]
    axes.axhline(1, color=COLOURS["stock"], linewidth=1.2, zorder=0)
    axes.text(
        len(cases) - 0.5, 1, " stock", color=COLOURS["stock"], va="center", ha="left", fontsize=8
    )
    shown: dict[str, list[tuple[float, Numbers]]] = {}
    for variant, offset in zip(compared, offsets(len(compared), 0.28), strict=True):
        shown[variant] = [
            (index + offset, case["ratios"][f"{variant}/stock"][metric])
            for index, case in enumerate(cases)
            if metric in case["ratios"].get(f"{variant}/stock", {})
        ]
    ends = limits([entry for points in shown.values() for _, entry in points])
    for variant, points in shown.items():
        data = [entry for _, entry in points]
        axes.errorbar(
            [place for place, _ in points],
            [entry["median"] for entry in data],
            yerr=errors(data),
            fmt=MARKERS[variant],
            markersize=5,
            capsize=3,
            color=COLOURS[variant],
            label=LABELS[variant],
        )
        _mark_cut(axes, points, ends, COLOURS[variant])
    axes.set_yscale("log", base=2)
    axes.set_yticks(ticks(*ends), [f"{tick:g}x" for tick in ticks(*ends)])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(*ends)
    axes.set_xlim(-0.5, len(cases) - 0.5)
    axes.set_ylabel("times stock, interval")
    axes.set_xticks(range(len(cases)), labels, fontsize=6.5)


def _mark_cut(
    axes: Axes, points: Sequence[tuple[float, Numbers]], ends: tuple[float, float], colour: str
) -> None:
    """Put an arrow's head where an interval, or a ratio of 0, leaves the picture."""
    bottom, top = ends
    above = [place for place, entry in points if entry["high"] > top]
    below = [place for place, entry in points if entry["low"] < bottom]
    for places, edge, mark in ((above, top, "^"), (below, bottom, "v")):
        if places:
            axes.plot(
                places,
                [edge] * len(places),
                linestyle="",
                marker=mark,
                markersize=7,
                markerfacecolor="none",
                color=colour,
                clip_on=False,
            )
