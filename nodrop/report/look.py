# SPDX-License-Identifier: GPL-2.0-only
"""How the drivers look in pictures: told apart by colour, and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from nodrop.report.rows import case_words

COLOURS = {"stock": "#757575", "upstream": "#d55e00", "nodrop": "#0072b2"}
"""Grey, and two colours of Okabe and Ito's that all kinds of eyes tell apart."""
HATCHES = {"stock": "", "upstream": "////", "nodrop": "xxx"}
MARKERS = {"stock": "o", "upstream": "s", "nodrop": "D"}
"""What tells the drivers apart where there is no colour."""
INK = "#222222"
FAINT = "#666666"
GRID = "#e5e5e5"
PAPER = "#ffffff"
LABELS = {"stock": "stock", "upstream": "upstream's flag", "nodrop": "nodrop"}
STYLE: Any = {
    "svg.hashsalt": "nodrop",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.6,
    # A name is a name: a dollar in it begins no formula.
    "text.parse_math": False,
}


def case_labels(summary: Mapping[str, Any]) -> list[str]:
    """Return short names of the cases, a word on a line."""
    return ["\n".join(reversed(case_words(name))) for name in summary["cases"]]


def offsets(count: int, width: float) -> list[float]:
    """Return where the drivers stand beside each other, around the place of a case."""
    return [(index - (count - 1) / 2) * width for index in range(count)]


def errors(data: Sequence[Mapping[str, float]]) -> list[list[float]]:
    """Return how far the intervals reach below and above the medians."""
    return [
        [max(entry["median"] - entry["low"], 0.0) for entry in data],
        [max(entry["high"] - entry["median"], 0.0) for entry in data],
    ]


def bars(variant: str) -> dict[str, Any]:
    """Return how a driver's bars look: colour and pattern."""
    return {
        "facecolor": COLOURS[variant],
        "edgecolor": PAPER,
        "linewidth": 0,
        "hatch": HATCHES[variant],
        "label": LABELS[variant],
    }


def grid(axes: Axes) -> None:
    """Draw faint lines behind the data, at the values of the vertical axis."""
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def legend(figure: Figure, variants: Sequence[str]) -> None:
    """Show each driver's bar, and the point that stands for it beside stock's line."""
    handles = []
    for name in variants:
        bar = mpl.patches.Patch(**bars(name))
        point = Line2D([], [], linestyle="", marker=MARKERS[name], color=COLOURS[name])
        handles.append((bar,) if name == "stock" else (bar, point))
    figure.legend(
        handles=handles,
        labels=[LABELS[name] for name in variants],
        handler_map={tuple: HandlerTuple(ndivide=None)},
        loc="outside upper center",
        ncols=len(handles),
        handlelength=3,
        frameon=False,
    )
