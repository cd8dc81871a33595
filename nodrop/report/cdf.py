# SPDX-License-Identifier: GPL-2.0-only
"""The distribution of the round-trip times of one case: a line for each driver, with a band."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from nodrop.report.look import COLOURS, GRID, LABELS, LINES, MARKERS

METRICS = ("latency_p50_ms", "latency_p99_ms", "latency_p999_ms")
"""Those that tell it in words."""
SHARES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
MARKED = (0.01, 0.1, 0.5, 0.9, 0.99)
"""Where a line has its driver's mark."""
_NAME = re.compile(r"latency_cdf_(\d+)_ms")

Point = tuple[float, Mapping[str, float]]


def points(numbers: Mapping[str, Mapping[str, float]]) -> list[Point]:
    """Return a driver's distribution: shares of the probes, and the times they did not exceed.

    Args:
        numbers: the summary of a driver in a case, by metric.
    """
    found = ((_NAME.fullmatch(name), data) for name, data in numbers.items())
    return sorted(
        ((int(match[1]) / 1000, data) for match, data in found if match), key=lambda one: one[0]
    )


def has_distribution(case: Mapping[str, Any]) -> bool:
    """Whether a case's summary tells the distribution of a driver."""
    return any(points(numbers) for numbers in case["variants"].values())


def span(cases: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the shortest and the longest time in ms that the lines of these cases have.

    Raises:
        ValueError: no case has a line.
    """
    times = [
        data["median"]
        for case in cases
        for numbers in case["variants"].values()
        for _, data in points(numbers)
    ]
    return min(times), max(times)


def draw(
    axes: Axes, case: Mapping[str, Any], variants: Sequence[str], ends: tuple[float, float]
) -> None:
    """Draw the lines: medians over the pairs, their intervals as bands.

    The shares stand on a scale that gives each nine of the tail as much room as the middle.

    Args:
        ends: of the horizontal axis, ms, the same for all cases of a scenario.
    """
    for variant in variants:
        found = points(case["variants"].get(variant, {}))
        if not found:
            continue
        shares = [share for share, _ in found]
        axes.fill_betweenx(
            shares,
            [data["low"] for _, data in found],
            [data["high"] for _, data in found],
            color=COLOURS[variant],
            alpha=0.18,
            linewidth=0,
        )
        axes.plot(
            [data["median"] for _, data in found],
            shares,
            linestyle=LINES[variant],
            marker=MARKERS[variant],
            markersize=4,
            markevery=[at for at, share in enumerate(shares) if share in MARKED],
            linewidth=1.6,
            color=COLOURS[variant],
            label=LABELS[variant],
        )
    axes.set_xscale("log")
    axes.set_xlim(ends[0] / 1.3, ends[1] * 1.3)
    axes.set_yscale("logit")
    axes.set_ylim(SHARES[0], SHARES[-1])
    axes.set_yticks(SHARES, [f"{100 * share:g} %" for share in SHARES])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("round trip, ms, logarithmic")
    axes.set_ylabel("probes that took no longer")
    axes.grid(axis="x", color=GRID, linewidth=0.6)
