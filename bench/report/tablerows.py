# SPDX-License-Identifier: GPL-2.0-only
"""The rows of the table: the summary as text, for all outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.scenario import Metric, Scenario

ALL_CASES = "all cases"
MISSING = "-"


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        case: its label; empty if it is the same as in the row above.
        metric: label and unit.
        cells: in the order of :func:`columns`.
    """

    case: str
    metric: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A scenario's part of a table.

    Attributes:
        total_label: label of its last rows, about all cases together.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    total_label: str = ALL_CASES


def format_value(value: float) -> str:
    """Return a number with three significant digits, large ones rounded with separators."""
    if value == 0:
        return "0"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_interval(data: Mapping[str, float]) -> str:
    """Return a median with its interval."""
    low, high = format_value(data["low"]), format_value(data["high"])
    return f"{format_value(data['median'])} [{low}, {high}]"


def format_ratio(data: Mapping[str, float] | None) -> str:
    """Return a ratio with its interval."""
    if not data:
        return MISSING
    median, low, high = (f"{data[name]:.2f}" for name in ("median", "low", "high"))
    return f"{median} [{low}, {high}]"


def case_words(name: str) -> list[str]:
    """Return a case's parameters as text: ``["2 senders", "ring 5"]``.

    The ring has txqueuelen slots.
    """
    words = []
    for part in name.split(","):
        key, _, value = part.partition("=")
        if key in ("senders", "flows", "queues"):
            words.append(f"{value} {key.removesuffix('s') if value == '1' else key}")
        elif key == "txqueuelen":
            words.append(f"ring {value}")
        elif key == "offloads":
            words.append("TSO" if value == "True" else "no TSO")
        elif key == "bottleneck":
            words.append(f"slow {value}")
        elif key in ("payload", "payload_bytes"):
            words.append(f"{value} bytes")
        elif key in ("reader_cpu", "worker_cpu"):
            words.append("any CPU" if value == "-1" else f"CPU {value}")
        else:
            words.append(f"{key} {value}".strip())
    return words


def total_label(scenario: Scenario, summary: Mapping[str, Any]) -> str:
    """Return the label of all cases together, which excludes those without a run."""
    planned, made = len(scenario.cases()), len(summary["cases"])
    return ALL_CASES if made == planned else f"{made} of {planned} cases"


def columns(variants: Sequence[str]) -> tuple[str, ...]:
    """Return the headings of the columns after case and metric."""
    heads: list[str] = []
    for variant in variants:
        heads.append(variant)
        if variant != "stock" and "stock" in variants:
            heads.append(f"{variant} / stock")
    return tuple(heads)


def _cells(
    part: Mapping[str, Any],
    name: str,
    metric: Metric,
    variants: Sequence[str],
    form: Callable[[Mapping[str, float]], str],
) -> tuple[str, ...]:
    cells: list[str] = []
    for variant in variants:
        value = part["variants"].get(variant, {}).get(name)
        cells.append(form(value) if value else MISSING)
        if variant != "stock" and "stock" in variants:
            data = part["ratios"].get(f"{variant}/stock", {}).get(name)
            cells.append(format_ratio(data) if metric.has_ratio else MISSING)
    return tuple(cells)


def _rows(
    case: str,
    part: Mapping[str, Any],
    metrics: Mapping[str, Metric],
    variants: Sequence[str],
    form: Callable[[Mapping[str, float]], str],
) -> list[Row]:
    shown = [(name, metric) for name, metric in metrics.items() if metric.shown]
    return [
        Row(
            case=case if not index else "",
            metric=f"{metric.label}, {metric.unit}",
            cells=_cells(part, name, metric, variants, form),
        )
        for index, (name, metric) in enumerate(shown)
    ]


def format_median(data: Mapping[str, float]) -> str:
    """Return a median without its interval."""
    return format_value(data["median"])


def section(
    scenario: Scenario,
    summary: Mapping[str, Any],
    variants: Sequence[str],
    form: Callable[[Mapping[str, float]], str] = format_median,
) -> Section:
    """Return a scenario's part of the table; ``form`` formats the drivers' own numbers."""
    rows: list[Row] = []
    cases = summary["cases"]
    for name, case in cases.items():
        rows += _rows(", ".join(case_words(name)), case, scenario.metrics, variants, form)
    if len(cases) > 1:
        rows += _rows(total_label(scenario, summary), summary, scenario.metrics, variants, form)
    return Section(scenario.title, columns(variants), tuple(rows), total_label(scenario, summary))
