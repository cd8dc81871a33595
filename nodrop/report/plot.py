# SPDX-License-Identifier: GPL-2.0-only
"""The picture of a run, drawn from its summary alone."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nodrop.report import cdf, due, ratios
from nodrop.report.files import PLOT_NAMES, RunDirectory
from nodrop.report.look import (
    FAINT,
    INK,
    STYLE,
    bars,
    case_labels,
    errors,
    grid,
    legend,
    offsets,
)
from nodrop.report.rows import case_words
from nodrop.report.table import caption

PANEL_INCHES = (5.0, 3.9)
COLUMNS = 4
"""Panels beside each other in the picture at most."""
CHAR_INCHES, GAP_INCHES = 0.062, 0.1
"""Width of a character of a case's name below the axis, and what is left between two names."""
DPI = 150
CHARS_PER_INCH = 15
"""Of the caption, which goes on in another line where the picture ends."""
BARS = {
    "lost": ("Lost packets: a qdisc could have held them", "packets in a run"),
    "damaged_frames_percent": ("Damaged pictures", "%"),
    "longest_send_ms": ("Longest send()", "ms"),
}
"""Metrics that may be 0, and so have no ratio: title and unit."""
TCP_BARS = {"retransmits": ("Segments that TCP sent again", "segments in a run")}
"""The same of TCP over a long path."""
RATES = {
    "delivered_pps": "Delivered packets per second",
    "received_mbit_per_s": "Received bits per second",
    "goodput_mbit_per_s": "TCP goodput",
    "rtt_mean_ms": "TCP's round-trip time: less is better",
}
"""Metrics that are compared with stock's: title."""
LATENCIES = ("latency_p50_ms", "latency_p99_ms")

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """One part of a run's picture.

    Attributes:
        title: what it shows.
        metrics: the names of the metrics in it.
        scenario: whose.
        inches: how wide it has to be, so that the cases' names do not overlap.
        draw: draws it.
        case: the only one that it shows; empty: all of them.
    """

    title: str
    metrics: tuple[str, ...]
    scenario: str
    inches: float
    draw: Callable[[Axes], None]
    case: str = ""


def short_count(value: float) -> str:
    """Return a count with at most three digits: ``0``, ``17``, ``273k``, ``1.2M``."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            scaled = value / unit
            return f"{scaled:.1f}{name}" if scaled < 10 else f"{scaled:.0f}{name}"
    return f"{value:g}"


def _numbers(
    axes: Axes, summary: Mapping[str, Any], variants: Sequence[str], metric: str, unit: str
) -> None:
    """Medians on a logarithmic scale that has a zero."""
    cases = list(summary["cases"].values())
    width = 0.8 / len(variants)
    tallest: list[float] = []
    for variant, offset in zip(variants, offsets(len(variants), width), strict=True):
        found = [
            (index + offset, case["variants"][variant][metric]["median"])
            for index, case in enumerate(cases)
            if metric in case["variants"].get(variant, {})
        ]
        places = [place for place, _ in found]
        heights = [height for _, height in found]
        tallest += heights
        axes.bar(places, heights, width * 0.92, **bars(variant))
        for place, height in zip(places, heights, strict=True):
            axes.text(
                place,
                height * 1.15 or 0.12,
                short_count(height),
                ha="center",
                va="bottom",
                fontweight="bold" if height == 0 else "normal",
                fontsize=9 if height == 0 else 7,
            )
    axes.set_yscale("symlog", linthresh=1, linscale=0.5)
    axes.set_ylim(0, 10 * max([*tallest, 1]))
    axes.yaxis.set_major_formatter(lambda value, _: short_count(value))
    axes.set_ylabel(f"{unit}, logarithmic")
    axes.set_xticks(range(len(cases)), case_labels(summary), fontsize=7)


def latency(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str]) -> None:
    """Percentiles of the round-trip time under load, with intervals."""
    metrics = LATENCIES
    tallest = 0.0
    names: list[tuple[str, list[float], list[Numbers]]] = []
    width = 0.8 / len(variants)
    for variant, offset in zip(variants, offsets(len(variants), width), strict=True):
        told = summary["variants"].get(variant, {})
        found = [(index, told[name]) for index, name in enumerate(metrics) if name in told]
        if not found:
            continue
        data = [entry for _, entry in found]
        places = [index + offset for index, _ in found]
        axes.bar(
            places,
            [entry["median"] for entry in data],
            width * 0.92,
            yerr=errors(data),
            capsize=3,
            error_kw={"linewidth": 1, "ecolor": INK},
            **bars(variant),
        )
        tallest = max([tallest, *(entry["median"] for entry in data)])
        names.append((variant, places, data))
    top = 2 * tallest or 1
    for _, places, data in names:
        for place, entry in zip(places, data, strict=True):
            # Above the interval, or above the bar when that leaves the picture.
            end = entry["high"] if entry["high"] < 0.93 * top else entry["median"]
            axes.text(
                place,
                end + 0.015 * top,
                f" {entry['median']:.3g}",
                ha="center" if end == entry["high"] else "left",
                va="bottom",
                fontsize=8,
            )
    axes.set_ylim(0, top)
    axes.set_ylabel("round trip, ms, interval")
    axes.set_xticks(range(len(metrics)), ["p50", "p99"])


def panels(summaries: Mapping[str, Any], variants: Sequence[str]) -> list[Panel]:
    """Return what a run's picture consists of: what its scenarios measured."""
    found: list[Panel] = []
    for summary in summaries.values():
        metrics = summary["joins"]
        if "latency_p99_ms" in metrics and "goodput_mbit_per_s" in metrics:
            found.append(
                _panel(summary, variants, latency, "Latency beside a TCP flow", LATENCIES, 2)
            )
            if len(summaries) == 1:
                found += _relative(summary, variants, "goodput_mbit_per_s")
                found += _distributions(summary, variants)
            continue
        cases = len(summary["cases"])
        if due.METRIC in metrics:
            found.append(_panel(summary, variants, due.draw, due.TITLE, (due.METRIC,), cases))
            continue
        for metric, (title, unit) in _counts(metrics).items():
            if metric in metrics:
                how = partial(_numbers, metric=metric, unit=unit)
                found.append(_panel(summary, variants, how, title, (metric,), cases))
        for metric in RATES:
            if metric in metrics:
                found += _relative(summary, variants, metric)
    return found


def _counts(metrics: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
    """Return the titles and units of the numbers that are worth a panel of their own."""
    if "rtt_mean_ms" in metrics:
        return TCP_BARS
    # TCP sends again what was lost: its goodput tells.
    return {} if "goodput_mbit_per_s" in metrics else BARS


def _distributions(summary: Mapping[str, Any], variants: Sequence[str]) -> list[Panel]:
    """Return a panel for each case whose round-trip times are known as a whole."""
    known = {name: case for name, case in summary["cases"].items() if cdf.has_distribution(case)}
    ends = cdf.span(known.values()) if known else (1.0, 1.0)
    return [
        Panel(
            f"Latency: {', '.join(case_words(name))}" if len(known) > 1 else "Latency, all of it",
            cdf.METRICS,
            summary["scenario"],
            PANEL_INCHES[0],
            partial(cdf.draw, case=case, variants=variants, ends=ends),
            name,
        )
        for name, case in known.items()
    ]


def _panel(
    summary: Mapping[str, Any],
    variants: Sequence[str],
    how: Callable[..., None],
    title: str,
    metrics: tuple[str, ...],
    cases: int,
) -> Panel:
    return Panel(
        title,
        metrics,
        summary["scenario"],
        _inches(summary, cases),
        partial(how, summary=summary, variants=variants),
    )


def _inches(summary: Mapping[str, Any], cases: int) -> float:
    """Return how wide a panel with so many cases has to be."""
    lines = "\n".join(case_labels(summary)).split("\n")
    return max(PANEL_INCHES[0], (CHAR_INCHES * max(map(len, lines)) + GAP_INCHES) * cases + 1)


def _relative(summary: Mapping[str, Any], variants: Sequence[str], metric: str) -> list[Panel]:
    """Return the panel of a rate relative to stock, or none when nothing was compared."""
    if not any(pair.endswith("/stock") for pair in summary["ratios"]):
        return []
    how = partial(ratios.draw, metric=metric)
    return [_panel(summary, variants, how, RATES[metric], (metric,), len(summary["cases"]) + 1)]


def draw(summaries: Mapping[str, Any], variants: Sequence[str]) -> Figure:
    """Return the picture."""
    chosen = panels(summaries, variants)
    width, height = max(panel.inches for panel in chosen), PANEL_INCHES[1]
    columns = max(1, min(len(chosen), int(COLUMNS * PANEL_INCHES[0] / width)))
    rows = math.ceil(len(chosen) / columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    all_axes = figure.subplots(rows, columns, squeeze=False).flat
    for axes, panel in zip_longest(all_axes, chosen):
        if panel is None:
            axes.set_axis_off()
            continue
        panel.draw(axes)
        axes.set_title(panel.title)
        grid(axes)
    legend(figure, variants)
    words = textwrap.fill(caption(summaries), int(CHARS_PER_INCH * width * columns))
    figure.supxlabel(words, fontsize=7, color=FAINT)
    return figure


def svg(panel: Panel, variants: Sequence[str]) -> str:
    """Return one panel as SVG, without title, caption and background: the page has its own."""
    text = io.StringIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(panel.inches, PANEL_INCHES[1]), layout="constrained")
        axes = figure.subplots()
        panel.draw(axes)
        grid(axes)
        legend(figure, variants)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()


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
