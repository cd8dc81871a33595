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
from matplotlib.ticker import NullLocator

from nodrop.report.files import PLOT_NAME, RunDirectory
from nodrop.report.look import (
    COLOURS,
    FAINT,
    INK,
    LABELS,
    MARKERS,
    STYLE,
    bars,
    case_labels,
    errors,
    grid,
    legend,
    offsets,
)
from nodrop.report.table import caption

PANEL_INCHES = (5.0, 3.9)
COLUMNS = 4
"""Panels beside each other in the picture at most."""
CHAR_INCHES, GAP_INCHES = 0.062, 0.1
"""Width of a character of a case's name below the axis, and what is left between two names."""
CHARS_PER_INCH = 15
"""Of the caption, which goes on in another line where the picture ends."""
COUNTS = {
    "lost": ("Lost packets: a qdisc could have held them", "packets in a run"),
    "damaged_frames_percent": ("Damaged pictures", "%"),
    "longest_send_ms": ("Longest send()", "ms"),
}
"""Metrics that may be 0, and so have no ratio: title and unit."""
RATES = {
    "delivered_pps": "Delivered packets per second",
    "received_mbit_per_s": "Received bits per second",
    "goodput_mbit_per_s": "TCP goodput",
    "rtt_mean_ms": "TCP's round-trip time: less is better",
}
"""Metrics that are compared with stock's: title."""
DUE = "first_due_percent"
LATENCIES = ("latency_p50_ms", "latency_p99_ms")
LEAST, MARGIN = 1.25, 1.3
"""The axis of ratios goes at least to LEAST and 1 / LEAST, and by MARGIN beyond all medians."""
TICKS = (1 / 64, 1 / 16, 0.25, 0.5, 0.8, 1, 1.25, 2, 4, 16, 64)

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """One part of a run's picture.

    Attributes:
        title: what it shows.
        inches: how wide it has to be, so that the cases' names do not overlap.
        draw: draws it.
    """

    title: str
    inches: float
    draw: Callable[[Axes], None]


def short_count(value: float) -> str:
    """Return a count with at most three digits: ``0``, ``17``, ``273k``, ``1.2M``."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            scaled = value / unit
            return f"{scaled:.1f}{name}" if scaled < 10 else f"{scaled:.0f}{name}"
    return f"{value:g}"


def _counts(
    axes: Axes, summary: Mapping[str, Any], variants: Sequence[str], metric: str, unit: str
) -> None:
    """Medians on a logarithmic scale that has a zero."""
    cases = list(summary["cases"].values())
    width = 0.8 / len(variants)
    for variant, offset in zip(variants, offsets(len(variants), width), strict=True):
        for index, case in enumerate(cases):
            if metric not in case["variants"].get(variant, {}):
                continue
            place, height = index + offset, case["variants"][variant][metric]["median"]
            axes.bar(place, height, width * 0.92, **bars(variant))
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
    axes.set_ylim(0, 10 * max(axes.get_ylim()[1], 1))
    axes.yaxis.set_major_formatter(lambda value, _: short_count(value))
    axes.set_ylabel(f"{unit}, logarithmic")
    axes.set_xticks(range(len(cases)), case_labels(summary), fontsize=7)


def latency(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str]) -> None:
    """Percentiles of the round-trip time under load, with intervals."""
    tallest = 0.0
    width = 0.8 / len(variants)
    for variant, offset in zip(variants, offsets(len(variants), width), strict=True):
        told = summary["variants"].get(variant, {})
        for index, data in enumerate(told[name] for name in LATENCIES if name in told):
            axes.bar(
                index + offset,
                data["median"],
                width * 0.92,
                yerr=errors([data]),
                capsize=3,
                error_kw={"linewidth": 1, "ecolor": INK},
                **bars(variant),
            )
            above = min(data["high"], 1.8 * data["median"])
            number = f"{data['median']:.3g}"
            axes.text(index + offset, above, number, ha="center", va="bottom", fontsize=8)
            tallest = max(tallest, data["median"])
    axes.set_ylim(0, 2 * tallest or 1)
    axes.set_ylabel("round trip, ms, interval")
    axes.set_xticks(range(len(LATENCIES)), ["p50", "p99"])


def _points(
    axes: Axes,
    cases: Sequence[Mapping[str, Any]],
    variants: Sequence[str],
    pick: Callable[[Mapping[str, Any], str], Numbers | None],
) -> list[Numbers]:
    """Draw a point with its interval for each driver and case; return their numbers."""
    drawn: list[Numbers] = []
    for variant, offset in zip(variants, offsets(len(variants), 0.25), strict=True):
        found = [
            (at + offset, data) for at, case in enumerate(cases) if (data := pick(case, variant))
        ]
        drawn += [data for _, data in found]
        axes.errorbar(
            [place for place, _ in found],
            [data["median"] for _, data in found],
            yerr=errors([data for _, data in found]),
            fmt=MARKERS[variant],
            markersize=5,
            capsize=3,
            color=COLOURS[variant],
            label=LABELS[variant],
        )
    axes.set_xlim(-0.5, len(cases) - 0.5)
    return drawn


def _due(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str]) -> None:
    """What a class of traffic got, beside the line of what is due."""
    axes.axhline(100, color=FAINT, linewidth=1.2, zorder=0)
    cases = list(summary["cases"].values())
    drawn = _points(axes, cases, variants, lambda case, name: case["variants"][name].get(DUE))
    axes.set_ylim(0, 1.15 * max([100.0, *(data["median"] for data in drawn)]))
    axes.set_ylabel("%, interval")
    axes.set_xticks(range(len(cases)), case_labels(summary), fontsize=7)


def _relative(axes: Axes, summary: Mapping[str, Any], variants: Sequence[str], metric: str) -> None:
    """A rate relative to stock's: all cases, and last what they are together."""
    cases, labels = list(summary["cases"].values()), case_labels(summary)
    if len(cases) > 1:
        cases, labels = [*cases, summary], [*labels, "together"]
    axes.axhline(1, color=COLOURS["stock"], linewidth=1.2, zorder=0)
    drawn = _points(
        axes,
        cases,
        [variant for variant in variants if variant != "stock"],
        lambda case, name: case["ratios"].get(f"{name}/stock", {}).get(metric),
    )
    medians = [data["median"] for data in drawn if data["median"] > 0]
    end = MARGIN * max([LEAST, *medians, *(1 / median for median in medians)])
    axes.set_yscale("log", base=2)
    axes.set_yticks(TICKS, [f"{tick:g}x" for tick in TICKS])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(1 / end, end)
    axes.set_ylabel("times stock, interval")
    axes.set_xticks(range(len(cases)), labels, fontsize=6.5)


def panels(summaries: Mapping[str, Any], variants: Sequence[str]) -> list[Panel]:
    """Return what a run's picture consists of: what its scenarios measured."""
    found: list[Panel] = []
    for summary in summaries.values():
        metrics = summary["joins"]
        wide, bound = _inches(summary), {"summary": summary, "variants": variants}
        has_latency = "latency_p99_ms" in metrics
        if has_latency:
            title = "Latency beside a TCP flow"
            found.append(Panel(title, PANEL_INCHES[0], partial(latency, **bound)))
        if DUE in metrics:
            title = "What the first class got of its due"
            found.append(Panel(title, wide, partial(_due, **bound)))
            continue
        # TCP sends again what was lost: its goodput tells.
        for metric, (title, unit) in COUNTS.items() if "goodput_mbit_per_s" not in metrics else ():
            if metric in metrics:
                draw = partial(_counts, **bound, metric=metric, unit=unit)
                found.append(Panel(title, wide, draw))
        if len(summaries) > 1 and has_latency:
            continue
        for metric, title in RATES.items():
            if metric in metrics and any(pair.endswith("/stock") for pair in summary["ratios"]):
                found.append(Panel(title, wide, partial(_relative, **bound, metric=metric)))
    return found


def _inches(summary: Mapping[str, Any]) -> float:
    """Return how wide a panel with all cases has to be."""
    longest = max(map(len, "\n".join(case_labels(summary)).split("\n")))
    return max(PANEL_INCHES[0], (CHAR_INCHES * longest + GAP_INCHES) * (len(summary["cases"]) + 1))


def _figure(chosen: Sequence[Panel], words: str, variants: Sequence[str]) -> Figure:
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
    text = textwrap.fill(words, int(CHARS_PER_INCH * width * columns))
    figure.supxlabel(text, fontsize=7, color=FAINT)
    return figure


def svg(summaries: Mapping[str, Any], variants: Sequence[str]) -> str:
    """Return the picture, the same for the same data; empty when nothing has a panel."""
    chosen = panels(summaries, variants)
    if not chosen:
        return ""
    text = io.StringIO()
    with mpl.rc_context(STYLE):
        figure = _figure(chosen, caption(summaries), variants)
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Draw the picture beside the raw data, if there is anything to draw."""
    if text := svg(summaries, directory.meta["variants"]):
        (directory.path / PLOT_NAME).write_text(text, encoding="utf-8")
