# SPDX-License-Identifier: GPL-2.0-only
"""The plot of a run, drawn from its summary: a bar for each driver and case."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report.table import base_of, caption, case_words
from bench.rundir import PLOT_NAME, RunDirectory
from lab.variant import COMPARED

COLOURS = {
    "stock": "#757575",
    "upstream": "#d55e00",
    "nodrop": "#0072b2",
    "series": "#009e73",
    "old": "#cc79a7",
}
"""Grey, and four colours of Okabe and Ito's palette for all kinds of colour vision."""
HATCHES = {"upstream": "////", "nodrop": "xxx", "series": "..", "old": "..."}
"""Distinguishes the drivers without colours."""
LABELS = {
    "upstream": "upstream's flag",
    "series": "series for net-next",
    "old": "nodrop, other commit",
}
INK, FAINT = "#222222", "#666666"
STYLE: Any = {
    "svg.hashsalt": "nodrop",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "grid.color": "#e5e5e5",
    "hatch.linewidth": 0.6,
    # A dollar sign in a name must not start a formula.
    "text.parse_math": False,
}
PANEL_INCHES = (5.0, 3.9)
CHAR_INCHES, GAP_INCHES = 0.062, 0.1
"""Width of a character of a case's name below the axis, and the gap between two names."""
COLUMNS = 4
"""Maximum number of panels in a row."""
CHARS_PER_INCH = 15
"""Of the caption, which is wrapped at the plot's width."""
COUNTS = {
    "lost": ("Driver drops that a qdisc could have queued", "packets in a run"),
    "damaged_frames_percent": ("Damaged frames", "%"),
    "longest_send_ms": ("Longest send()", "ms"),
    "cycles_ratio": ("Cycles per packet, of those as stock", "times"),
}
"""Metrics without ratios, as they are often 0 or one themselves: title and unit."""
RATES = {
    "delivered_pps": "Delivered packets per second",
    "received_mbit_per_s": "Received bits per second",
    "goodput_mbit_per_s": "TCP goodput",
    "download_mbit_per_s": "TCP goodput of the downloads",
    "rtt_mean_ms": "TCP's round-trip time: less is better",
    "instructions_per_packet": "Instructions per packet: less is better",
    "instructions_per_route": "Instructions per route: less is better",
    "cycles_per_packet": "Cycles per packet: less is better",
    "fast_beside_ratio": "Fast guest beside a slow one, of its rate alone",
}
"""Metrics that are shown as ratios to stock: title."""
WIDE = 100.0
"""A plot of medians has a logarithmic axis if they differ by more than this factor."""
DUE = "first_due_percent"
LATENCIES = {"latency_p50_ms": "p50", "latency_p99_ms": "p99"}

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """One part of a plot.

    Attributes:
        title: what it shows.
        unit: of the vertical axis.
        labels: of the groups of bars.
        groups: for each group of bars, driver -> median and interval.
        variants: the drivers.
        line: value of a reference line; None: no line.
        linear: the vertical axis is linear up to here and logarithmic above, so it includes 0;
            None: it is linear.
    """

    title: str
    unit: str
    labels: Sequence[str]
    groups: Sequence[Mapping[str, Numbers]]
    variants: Sequence[str]
    line: float | None = None
    linear: float | None = None

    @property
    def inches(self) -> float:
        """Width at which the labels do not overlap, inches."""
        longest = max(map(len, "\n".join(self.labels).split("\n")))
        return max(PANEL_INCHES[0], (CHAR_INCHES * longest + GAP_INCHES) * (len(self.labels) + 1))

    def draw(self, axes: Axes) -> None:
        """Draw medians as bars, with their intervals; the axis ends slightly above the medians."""
        width, tallest = 0.8 / len(self.variants), self.line or 0.0
        for number, variant in enumerate(self.variants):
            for index, group in enumerate(self.groups):
                if variant not in group:
                    continue
                data = group[variant]
                x = index + (number - (len(self.variants) - 1) / 2) * width
                height = data["median"]
                tallest = max(tallest, height)
                axes.bar(x, height, width * 0.92, **style(variant))
                low, high = (abs(data[name] - height) for name in ("low", "high"))
                if low or high:
                    axes.errorbar(x, height, [[low], [high]], capsize=2, color=INK, lw=0.8)
                above = height * 1.15 if self.linear else min(data["high"], 1.3 * height)
                axes.text(
                    x,
                    above or (self.linear or 0.0) / 5,
                    short(height),
                    ha="center",
                    va="bottom",
                    fontsize=9 if height == 0 else 7,
                    fontweight="bold" if height == 0 else "normal",
                )
        if self.linear:
            axes.set_yscale("symlog", linthresh=self.linear, linscale=0.5)
            axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.set_ylim(0, max(10 * tallest, 10) if self.linear else 1.4 * tallest or 1)
        if self.line is not None:
            axes.axhline(self.line, color=FAINT, linewidth=1.2, zorder=0)
        axes.set_title(self.title)
        axes.set_ylabel(self.unit)
        axes.set_xticks(range(len(self.labels)), self.labels, fontsize=7)
        axes.grid(axis="y")


def style(variant: str) -> dict[str, Any]:
    return {
        "facecolor": COLOURS[variant],
        "edgecolor": "#ffffff",
        "linewidth": 0,
        "hatch": HATCHES.get(variant, ""),
        "label": LABELS.get(variant, variant),
    }


def short(value: float) -> str:
    """Return a number with at most three digits: ``0``, ``0.96``, ``17``, ``273k``, ``1.2M``."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            scaled = value / unit
            return f"{scaled:.1f}{name}" if scaled < 10 else f"{scaled:.0f}{name}"
    return f"{value:.3g}"


def latency(summary: Mapping[str, Any], variants: Sequence[str]) -> Panel:
    """Return the panel of the round-trip time's percentiles under load."""
    return Panel(
        "Latency beside a TCP flow",
        "round trip, ms, interval",
        list(LATENCIES.values()),
        [_values(summary["variants"], metric) for metric in LATENCIES],
        variants,
    )


def _values(part: Mapping[str, Mapping[str, Numbers]], metric: str) -> dict[str, Numbers]:
    """Return a metric of each driver, or ratio, that has it."""
    return {name: metrics[metric] for name, metrics in part.items() if metric in metrics}


def panels(summaries: Mapping[str, Any], variants: Sequence[str]) -> list[Panel]:
    return [
        panel
        for summary in summaries.values()
        for panel in _panels(summary, variants, alone=len(summaries) == 1)
    ]


def _panels(summary: Mapping[str, Any], variants: Sequence[str], *, alone: bool) -> Iterator[Panel]:
    metrics, cases = summary["joins"], list(summary["cases"].values())
    labels = ["\n".join(reversed(case_words(name))) for name in summary["cases"]]
    has_latency = "latency_p99_ms" in metrics

    if has_latency:
        yield latency(summary, variants)
    if DUE in metrics:
        title = "Share of the first class, of its due share"
        groups = [_values(case["variants"], DUE) for case in cases]
        yield Panel(title, "%, interval", labels, groups, variants, line=100)
        return
    # TCP retransmits what is dropped: its goodput shows the cost.
    for metric, (title, unit) in COUNTS.items() if "goodput_mbit_per_s" not in metrics else ():
        if metric in metrics:
            groups = [_values(case["variants"], metric) for case in cases]
            yield Panel(title, f"{unit}, logarithmic", labels, groups, variants, linear=1)
    if not alone and has_latency:
        return
    every = [*cases, summary] if len(cases) > 1 else cases
    below = [*labels, "together"] if len(cases) > 1 else labels
    base = base_of(variants)
    others = [variant for variant in variants if variant != base]

    for metric, title in RATES.items():
        if metric in metrics and any(pair.endswith(f"/{base}") for pair in summary["ratios"]):
            ratios = [_values(part["ratios"], metric) for part in every]
            groups = [
                {name: part[f"{name}/{base}"] for name in others if f"{name}/{base}" in part}
                for part in ratios
            ]
            yield Panel(title, f"times {base}, interval", below, groups, others, line=1)


def finish(figure: Figure, text: str, variants: Sequence[str]) -> None:
    figure.legend(
        handles=[mpl.patches.Patch(**style(name)) for name in variants],
        loc="outside upper center",
        ncols=len(variants),
        frameon=False,
    )
    text = textwrap.fill(text, int(CHARS_PER_INCH * figure.get_figwidth()))
    figure.supxlabel(text, fontsize=7, color=FAINT)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def medians(summaries: Sequence[Mapping[str, Any]], text: str) -> str:
    """Return one plot of the median latency of several runs, reproducible from their data.

    Args:
        summaries: of different scenarios; with several cases, one has a group of bars for each.
        text: what stands below it.
    """
    metric, (width, height) = next(iter(LATENCIES)), PANEL_INCHES
    labels: list[str] = []
    groups: list[Mapping[str, Numbers]] = []
    for summary in summaries:
        cases = summary["cases"] if len(summary["cases"]) > 1 else {"": summary}
        title = textwrap.fill(summary["title"].partition(":")[0], 24, break_on_hyphens=False)
        for name, part in cases.items():
            words = [textwrap.fill(word, 13) for word in reversed(case_words(name)) if name]
            labels.append("\n".join([*words, title] if len(summaries) > 1 else words or [title]))
            values = _values(part["variants"], metric)
            groups.append({name: values[name] for name in COMPARED if name in values})
    shown = [numbers["median"] for group in groups for numbers in group.values()]
    linear = 1.0 if max(shown, default=0) > WIDE * min(shown, default=0) else None
    unit = "ms, interval, logarithmic" if linear else "ms, interval"
    panel = Panel("Median round trip under load", unit, labels, groups, COMPARED, linear=linear)
    with mpl.rc_context(STYLE):
        size = (max(1.4 * width, 0.9 * panel.inches), 0.8 * height)
        figure = Figure(figsize=size, layout="constrained")
        panel.draw(figure.add_subplot())
        finish(figure, text, COMPARED)
        return _svg(figure)


def svg(summaries: Mapping[str, Any], variants: Sequence[str]) -> str:
    """Return the plot, reproducible from the data; empty if there are no panels."""
    chosen = panels(summaries, variants)
    if not chosen:
        return ""
    width = max(panel.inches for panel in chosen)
    columns = max(1, min(len(chosen), int(COLUMNS * PANEL_INCHES[0] / width)))
    rows = math.ceil(len(chosen) / columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, PANEL_INCHES[1] * rows), layout="constrained")
        for index, panel in enumerate(chosen, start=1):
            panel.draw(figure.add_subplot(rows, columns, index))
        finish(figure, caption(summaries), variants)
        return _svg(figure)


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the plot into the run's directory, if there is one."""
    if text := svg(summaries, directory.meta["variants"]):
        (directory.path / PLOT_NAME).write_text(text, encoding="utf-8")
