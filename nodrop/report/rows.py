# SPDX-License-Identifier: GPL-2.0-only
"""The rows of the table: one text form of the summary for every output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.bench.scenario import Metric, Scenario

ALL_CASES = "all cases"
MISSING = "-"


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        case: what it is about; empty when it is the same as in the row above.
        metric: the metric's label and unit.
        cells: by the columns of :func:`columns`.
    """

    case: str
    metric: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """The part of a table that is about one scenario."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def format_value(value: float) -> str:
    """Return a number with three significant digits, or whole with separators."""
    if value == 0:
        return "0"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_ratio(data: Mapping[str, float] | None) -> str:
    """Return a ratio with its interval."""
    if not data:
        return MISSING
    return f"{data['median']:.2f} [{data['low']:.2f}, {data['high']:.2f}]"


def case_words(name: str) -> list[str]:
    """Return what is special about a case, in words: ``["2 senders", "ring 5"]``.

    The ring has as many slots as the device's txqueuelen.
    """
    words = []
    for part in name.split(","):
        key, _, value = part.partition("=")
        if key in ("senders", "flows"):
            words.append(f"{value} {key.removesuffix('s') if value == '1' else key}")
        elif key == "txqueuelen":
            words.append(f"ring {value}")
        elif key == "offloads":
            words.append("TSO" if value == "True" else "no TSO")
        elif key == "reader_cpu":
            words.append("any CPU" if value == "-1" else f"CPU {value}")
        else:
            words.append(f"{key} {value}".strip())
    return words


def columns(variants: Sequence[str]) -> tuple[str, ...]:
    """Return the heads of the columns after case and metric."""
    heads: list[str] = []
    for variant in variants:
        heads.append(variant)
        if variant != "stock" and "stock" in variants:
            heads.append(f"{variant} / stock")
    return tuple(heads)


def _cells(
    part: Mapping[str, Any], name: str, metric: Metric, variants: Sequence[str]
) -> tuple[str, ...]:
    cells: list[str] = []
    for variant in variants:
        value = part["variants"].get(variant, {}).get(name)
        cells.append(format_value(value["median"]) if value else MISSING)
        if variant != "stock" and "stock" in variants:
            # A ratio of counts that are mostly 0 tells nothing that they don't.
            data = part["ratios"].get(f"{variant}/stock", {}).get(name)
            cells.append(MISSING if metric.join == "sum" else format_ratio(data))
    return tuple(cells)


def _rows(
    case: str, part: Mapping[str, Any], metrics: Mapping[str, Metric], variants: Sequence[str]
) -> list[Row]:
    shown = [(name, metric) for name, metric in metrics.items() if metric.shown]
    return [
        Row(
            case=case if not index else "",
            metric=f"{metric.label}, {metric.unit}",
            cells=_cells(part, name, metric, variants),
        )
        for index, (name, metric) in enumerate(shown)
    ]


def section(scenario: Scenario, summary: Mapping[str, Any], variants: Sequence[str]) -> Section:
    """Return a scenario's part of the table."""
    rows: list[Row] = []
    cases = summary["cases"]
    for name, case in cases.items():
        rows += _rows(", ".join(case_words(name)), case, scenario.metrics, variants)
    if len(cases) > 1:
        rows += _rows(ALL_CASES, summary, scenario.metrics, variants)
    return Section(scenario.title, columns(variants), tuple(rows))
