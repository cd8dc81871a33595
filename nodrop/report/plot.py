# SPDX-License-Identifier: GPL-2.0-only
"""The picture of a run, drawn from its summary alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nodrop.report.files import PLOT_NAMES, RunDirectory
from nodrop.report.rows import case_words
from nodrop.report.table import caption

COLOURS = {"stock": "#8c8c8c", "upstream": "#e08214", "nodrop": "#1b7837"}
LABELS = {"stock": "stock", "upstream": "upstream's flag", "nodrop": "nodrop"}
PANEL_INCHES = (5.0, 3.9)
DPI = 150
RATIO_TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 4)
STYLE: Any = {
    "svg.hashsalt": "nodrop",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}

Panel = Callable[[Axes], None]
Numbers = Mapping[str, float]


def _case_labels(summary: Mapping[str, Any]) -> list[str]:
    """Return short names of the cases, a word on a line."""
    return ["\n".join(reversed(case_words(name))) for name in summary["cases"]]


def short_count(value: float) -> str:
    """Return a count with at most three digits: ``0``, ``17``, ``273k``, ``1.2M``."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            scaled = value / unit
            return f"{scaled:.1f}{name}" if scaled < 10 else f"{scaled:.0f}{name}"
    return f"{value:g}"


def _offsets(count: int, width: float) -> list[float]:
    return [(index - (count - 1) / 2) * width for index in range(count)]


def _errors(data: Sequence[Numbers]) -> list[list[float]]:
    return [
        [max(entry["median"] - entry["low"], 0.0) for entry in data],
        [max(entry["high"] - entry["median"], 0.0) for entry in data],
    ]


def _lost(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str]) -> None:
    """Lost packets per second of sending, on a logarithmic scale that has a zero."""
    cases = list(summary["cases"].values())
    width = 0.8 / len(variants)
    tallest: list[float] = []
    for variant, offset in zip(variants, _offsets(len(variants), width), strict=True):
        found = [
            (index + offset, case["variants"][variant]["lost"]["median"])
            for index, case in enumerate(cases)
            if variant in case["variants"]
        ]
        places = [place for place, _ in found]
        heights = [height for _, height in found]
        tallest += heights
        axes.bar(places, heights, width * 0.92, color=COLOURS[variant], label=LABELS[variant])
        for place, height in zip(places, heights, strict=True):
            axes.text(
                place,
                height * 1.15 or 0.12,
                short_count(height),
                ha="center",
                va="bottom",
                color=COLOURS[variant],
                fontweight="bold" if height == 0 else "normal",
                fontsize=9 if height == 0 else 7,
            )
    axes.set_yscale("symlog", linthresh=1, linscale=0.5)
    axes.set_ylim(0, 10 * max([*tallest, 1]))
    axes.set_ylabel("packets in a run, logarithmic")
    axes.set_title("Lost packets: a qdisc could have held them")
    axes.set_xticks(range(len(cases)), _case_labels(summary), fontsize=7)


def _delivered(
    axes: Axes, summary: Mapping[str, Any], variants: Sequence[str], metric: str, title: str
) -> None:
    """A rate relative to stock, with intervals."""
    cases = list(summary["cases"].values())
    labels = _case_labels(summary)
    if len(cases) > 1:
        cases = [*cases, summary]
        labels = [*labels, "all"]
    compared = [variant for variant in variants if variant != "stock"]
    axes.axhline(1, color=COLOURS["stock"], linewidth=1.2, zorder=0)
    axes.text(
        len(cases) - 0.5, 1, " stock", color=COLOURS["stock"], va="center", ha="left", fontsize=8
    )
    for variant, offset in zip(compared, _offsets(len(compared), 0.28), strict=True):
        points = [
            (index + offset, case["ratios"][f"{variant}/stock"][metric])
            for index, case in enumerate(cases)
            if metric in case["ratios"].get(f"{variant}/stock", {})
        ]
        data = [entry for _, entry in points]
        axes.errorbar(
            [place for place, _ in points],
            [entry["median"] for entry in data],
            yerr=_errors(data),
            fmt="o",
            markersize=5,
            capsize=3,
            color=COLOURS[variant],
            label=LABELS[variant],
        )
    axes.set_yscale("log", base=2)
    # A disturbed run's interval may leave the picture; the table has its ends.
    axes.set_ylim(RATIO_TICKS[0], RATIO_TICKS[-1])
    axes.set_yticks(RATIO_TICKS, [f"{tick:g}x" for tick in RATIO_TICKS])
    axes.set_xlim(-0.5, len(cases) - 0.5)
    axes.set_title(title)
    axes.set_ylabel("times stock, interval")
    axes.set_xticks(range(len(cases)), labels, fontsize=6.5)


def _latency(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str]) -> None:
    """Percentiles of the round-trip time under load, with intervals."""
    metrics = ["latency_p50_ms", "latency_p99_ms"]
    tallest = 0.0
    width = 0.8 / len(variants)
    for variant, offset in zip(variants, _offsets(len(variants), width), strict=True):
        if variant not in summary["variants"]:
            continue
        data = [summary["variants"][variant][metric] for metric in metrics]
        places = [index + offset for index in range(len(metrics))]
        axes.bar(
            places,
            [entry["median"] for entry in data],
            width * 0.92,
            yerr=_errors(data),
            capsize=3,
            error_kw={"linewidth": 1, "ecolor": "#333333"},
            color=COLOURS[variant],
            label=LABELS[variant],
        )
        for place, entry in zip(places, data, strict=True):
            axes.text(
                place,
                0,
                f"{entry['median']:.3g}",
                ha="center",
                va="bottom",
                fontsize=8,
                color="white",
                fontweight="bold",
            )
            tallest = max(tallest, entry["median"])
    axes.set_ylim(0, 2 * tallest or 1)
    axes.set_ylabel("round trip, ms, interval")
    axes.set_title("Latency beside a TCP flow")
    axes.set_xticks(range(len(metrics)), ["p50", "p99"])


def panels(summaries: Mapping[str, Any], variants: Sequence[str]) -> list[Panel]:
    """Return what a run's picture consists of: what its scenarios measured."""
    found: list[Panel] = []
    for summary in summaries.values():
        metrics = summary["joins"]
        if "delivered_pps" in metrics:
            found.append(partial(_lost, summary=summary, variants=variants))
            found += _relative(summary, variants, "delivered_pps", "Delivered packets per second")
        if "latency_p99_ms" not in metrics and "goodput_mbit_per_s" in metrics:
            found += _relative(summary, variants, "goodput_mbit_per_s", "TCP goodput")
        if "latency_p99_ms" in metrics:
            found.append(partial(_latency, summary=summary, variants=variants))
            if len(summaries) == 1:
                found += _relative(summary, variants, "goodput_mbit_per_s", "TCP goodput")
    return found


def _relative(
    summary: Mapping[str, Any], variants: Sequence[str], metric: str, title: str
) -> list[Panel]:
    """Return the panel of a rate relative to stock, or none when nothing was compared."""
    if not any(pair.endswith("/stock") for pair in summary["ratios"]):
        return []
    return [partial(_delivered, summary=summary, variants=variants, metric=metric, title=title)]


def draw(summaries: Mapping[str, Any], variants: Sequence[str]) -> Figure:
    """Return the picture."""
    chosen = panels(summaries, variants)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(chosen), height), layout="constrained")
    all_axes = figure.subplots(1, len(chosen), squeeze=False)[0]
    for axes, panel in zip(all_axes, chosen, strict=True):
        panel(axes)
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
        axes.set_axisbelow(True)
    handles = [mpl.patches.Patch(color=COLOURS[name], label=LABELS[name]) for name in variants]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    figure.supxlabel(caption(summaries), fontsize=7, color="#666666")
    return figure


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Draw the picture and write it as SVG (without a date, so that it diffs) and PNG.

    Writes nothing when the scenarios measured nothing that has a panel.
    """
    if not panels(summaries, directory.meta["variants"]):
        return
    with mpl.rc_context(STYLE):
        figure = draw(summaries, directory.meta["variants"])
        for name in PLOT_NAMES:
            options: dict[str, Any] = {"dpi": DPI}
            if name.endswith(".svg"):
                options["metadata"] = {"Date": None}
            figure.savefig(directory.path / name, **options)
