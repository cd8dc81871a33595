# SPDX-License-Identifier: GPL-2.0-only
"""The picture of what a class got."""

from __future__ import annotations

from typing import Any

from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from nodrop.report import due, plot

DRIVERS = ("stock", "upstream", "nodrop")
GOT = {"stock": 45.0, "upstream": 140.0, "nodrop": 100.0}


def summary() -> dict[str, Any]:
    numbers = {
        driver: {due.METRIC: {"median": got, "low": got - 5, "high": got + 5}}
        for driver, got in GOT.items()
    }
    names = ("bottleneck=reader,qdisc=htb", "bottleneck=shaper,qdisc=htb")
    return {
        "scenario": "shaping",
        "joins": {due.METRIC: "geometric mean"},
        "ratios": {},
        "cases": {name: {"variants": numbers} for name in names},
    }


def test_each_driver_has_its_points() -> None:
    (panel,) = plot.panels({"shaping": summary()}, DRIVERS)
    axes = Figure().subplots()
    panel.draw(axes)
    drawn: list[Any] = [
        one.lines[0] for one in axes.containers if isinstance(one, ErrorbarContainer)
    ]
    assert [list(line.get_ydata()) for line in drawn] == [[got, got] for got in GOT.values()]
    assert axes.get_ylim()[1] > 145
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "qdisc htb\nslow reader",
        "qdisc htb\nslow shaper",
    ]
