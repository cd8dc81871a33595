# SPDX-License-Identifier: GPL-2.0-only
"""The picture of rates relative to stock's: its axis, and what leaves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nodrop.report import ratios

DRIVERS = ("stock", "nodrop")


def number(median: float, low: float, high: float) -> dict[str, float]:
    return {"median": median, "low": low, "high": high}


def drawn(*data: dict[str, float]) -> Axes:
    cases = {
        f"senders={at}": {"ratios": {"nodrop/stock": {"delivered_pps": one}}}
        for at, one in enumerate(data)
    }
    summary: dict[str, Any] = {"cases": cases, "ratios": {}}
    axes = Figure().subplots()
    ratios.draw(axes, summary, DRIVERS, "delivered_pps")
    return axes


def marks(axes: Axes, mark: str) -> list[float]:
    return [
        place
        for line in axes.lines
        if line.get_marker() == mark
        for place in np.asarray(line.get_xdata()).tolist()
    ]


@pytest.mark.parametrize(
    ("data", "end"),
    [
        # Small differences do not look large,
        ([number(0.99, 0.98, 1.01)], 1.25),
        # and can be seen; above and below are alike.
        ([number(0.95, 0.5, 1.04)], 2 * ratios.MARGIN),
        ([number(1.05, 0.97, 2)], 2 * ratios.MARGIN),
        # A wide interval does not flatten the others, a median does.
        ([number(1.05, 0.01, 30)], ratios.MOST * ratios.MARGIN),
        ([number(0, 0, 1)], 1.25),
    ],
)
def test_the_axis_fits_the_data(data: list[dict[str, float]], end: float) -> None:
    axes = drawn(*data)
    assert axes.get_ylim() == pytest.approx((1 / end, end))
    ticks = [float(tick) for tick in axes.get_yticks()]
    assert len(ticks) >= 3
    assert 1 in ticks
    assert min(ticks) >= 1 / end - 1e-9
    assert max(ticks) <= end + 1e-9


def test_an_axis_of_large_ratios_has_no_empty_half() -> None:
    axes = drawn(number(900, 800, 950), number(0.9, 0.8, 1))
    bottom, top = axes.get_ylim()
    assert bottom == pytest.approx(1 / 1.25, rel=0.1)
    assert 900 * 1.2 < top < 900 * 2
    assert [float(tick) for tick in axes.get_yticks()] == [1, 4, 16, 64, 256, 1024]


def test_what_leaves_the_picture_is_marked() -> None:
    axes = drawn(number(1, 0.9, 1.1), number(1, 0.01, 1.1), number(1, 0.9, 30), number(0, 0, 0.9))
    assert marks(axes, "v") == [1, 3]
    assert marks(axes, "^") == [2]
    assert marks(drawn(number(1, 0.26, 3.9)), "v") == []
