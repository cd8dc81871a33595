# SPDX-License-Identifier: GPL-2.0-only
"""The table of a run, for a terminal, a Markdown file and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report.summary import OTHERS, SPREAD, STEAL
from bench.rundir import MARKDOWN_NAME, RunDirectory
from bench.scenario import Metric, Scenario
from lab.variant import Variant
from nodrop.screen import Cell, Column, Screen

SET_UP = ("ip", "tc")
"""Programs of every scenario; they carry no packets."""
ALL_CASES = "all cases"
MISSING = "-"


@dataclass(frozen=True)
class TableRow:
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
    rows: tuple[TableRow, ...]
    total_label: str = ALL_CASES


def format_value(value: float) -> str:
    """Return a number with three significant digits, large ones rounded with separators."""
    if value == 0:
        return "0"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_interval(data: Mapping[str, float]) -> str:
    low, high = format_value(data["low"]), format_value(data["high"])
    return f"{format_value(data['median'])} [{low}, {high}]"


def format_ratio(data: Mapping[str, float], decimals: int = 2) -> str:
    median, low, high = (f"{data[name]:.{decimals}f}" for name in ("median", "low", "high"))
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
        elif key in ("tunnel", "vpn"):
            words.append(value)
        elif key == "txqueuelen":
            words.append(f"ring {value}")
        elif key == "offloads":
            words.append("TSO" if value == "True" else "no TSO")
        elif key == "bottleneck":
            words.append(f"slow {value}")
        elif key in ("payload", "payload_bytes"):
            words.append(f"{value} bytes")
        elif key == "sender_rate_pps":
            words.append(f"{value} packets/s")
        elif key == "work_per_kb_ns":
            words.append(f"{value} ns a kB")
        elif key == "work_ns":
            words.append(f"{int(value) / 1000:g} us a packet")
        elif key in ("reader_cpu", "worker_cpu"):
            words.append("any CPU" if value == "-1" else f"CPU {value}")
        else:
            words.append(f"{key} {value}".strip())
    return words


def total_label(scenario: Scenario, summary: Mapping[str, Any]) -> str:
    """Return the label of all cases together, which excludes those without a run."""
    planned, made = len(scenario.cases()), len(summary["cases"])
    return ALL_CASES if made == planned else f"{made} of {planned} cases"


def base_of(variants: Sequence[str]) -> str:
    """Return the variant with which the others are compared; "" if there is none."""
    return str(Variant.STOCK) if Variant.STOCK in variants else ""


def columns(variants: Sequence[str]) -> tuple[str, ...]:
    """Return the headings of the columns after case and metric."""
    base = base_of(variants)
    heads: list[str] = []
    for variant in variants:
        heads.append(variant)
        if base not in ("", variant):
            heads.append(f"{variant} / {base}")
    return tuple(heads)


def _cells(
    part: Mapping[str, Any],
    name: str,
    metric: Metric,
    variants: Sequence[str],
    form: Callable[[Mapping[str, float]], str],
) -> tuple[str, ...]:
    base = base_of(variants)
    cells: list[str] = []
    for variant in variants:
        value = part["variants"].get(variant, {}).get(name)
        cells.append(form(value) if value else MISSING)
        if base not in ("", variant):
            cells.append(_to_base(part, name, metric, variant, base))
    return tuple(cells)


def _to_base(part: Mapping[str, Any], name: str, metric: Metric, variant: str, base: str) -> str:
    """Return the ratio of a variant's value to the base's, and for an exact one the difference."""
    ratio = part["ratios"].get(f"{variant}/{base}", {}).get(name)
    if not ratio or not metric.has_ratio:
        return MISSING
    if not metric.exact:
        return format_ratio(ratio)
    difference = (ratio["median"] - 1) * part["variants"][base][name]["median"]
    return f"{format_ratio(ratio, 3)}, {difference:+,.0f}"


def _rows(
    case: str,
    part: Mapping[str, Any],
    metrics: Mapping[str, Metric],
    variants: Sequence[str],
    form: Callable[[Mapping[str, float]], str],
) -> list[TableRow]:
    shown = [(name, metric) for name, metric in metrics.items() if metric.shown]
    return [
        TableRow(
            case=case if not index else "",
            metric=f"{metric.label}, {metric.unit}",
            cells=_cells(part, name, metric, variants, form),
        )
        for index, (name, metric) in enumerate(shown)
    ]


def format_median(data: Mapping[str, float]) -> str:
    return format_value(data["median"])


def section(
    scenario: Scenario,
    summary: Mapping[str, Any],
    variants: Sequence[str],
    form: Callable[[Mapping[str, float]], str] = format_median,
) -> Section:
    """Return a scenario's part of the table; ``form`` formats the drivers' own numbers."""
    rows: list[TableRow] = []
    cases = summary["cases"]
    for name, case in cases.items():
        rows += _rows(", ".join(case_words(name)), case, scenario.metrics, variants, form)
    if len(cases) > 1:
        rows += _rows(total_label(scenario, summary), summary, scenario.metrics, variants, form)
    return Section(scenario.title, columns(variants), tuple(rows), total_label(scenario, summary))


def sections(directory: RunDirectory, summaries: Mapping[str, Any]) -> list[Section]:
    """Return the parts of a run's table; without stock, whose ratios have intervals, numbers do."""
    variants = directory.meta["variants"]
    form = format_median if base_of(variants) else format_interval
    return [
        section(directory.scenarios[name], summary, variants, form)
        for name, summary in summaries.items()
    ]


def caption(summaries: Mapping[str, Any]) -> str:
    """Return the line that says where and how the numbers of a run were made."""
    lengths = "; ".join(
        f"{name}: {summary['pairs']} {'pair' if summary['pairs'] == 1 else 'pairs'} "
        + (f"of {summary['seconds']:g} s" if summary["seconds"] else "of a fixed number of packets")
        for name, summary in summaries.items()
    )
    first = next(iter(summaries.values()))
    return (
        f"{where(first['kernel'], first['machine'])}. {lengths}. Medians; "
        "ratios pair by pair with their 95 % intervals (fewer than six: the range). "
        "A ring has txqueuelen slots."
    )


def note(directory: RunDirectory, summaries: Mapping[str, Any]) -> str:
    parts = [caption(summaries)]
    versions = directory.meta.get("programs", {})
    if words := ", ".join(f"{name} {of}" for name, of in versions.items() if name not in SET_UP):
        parts.append(f"With {words}.")
    if times := directory.meta["continued"]:
        parts.append(f"Interrupted and continued: {', '.join(times)}.")
    skipped = {f"{run.case} ({run.skipped})" for run in directory.runs if run.skipped}
    if skipped:
        parts.append(f"Not possible on this kernel: {', '.join(sorted(skipped))}.")
    parts += [noise_sentence(*item) for item in summaries.items()]
    return " ".join(parts)


def noise_sentence(name: str, summary: Mapping[str, Any]) -> str:
    """Return whether the machine was quiet during a scenario, with the measured shares."""
    if "qemu" in summary["kernel"]:
        return f"{name}: instructions were counted, so other programs make no difference."
    noise = summary["noise"]
    state = {True: "noisy", False: "quiet", None: "perhaps noisy, too little is recorded"}
    shares = [
        ("others' CPU time", noise["others_cpu_share"], OTHERS),
        ("a hypervisor's", noise["steal_share"], STEAL),
    ]
    if base_of(summary["variants"]):
        shares.append(("spread of stock's runs", noise["stock_spread"], SPREAD))
    parts = [
        f"{who} {'unknown' if share is None else f'{share:.1%}'} (noisy: over {mark:.0%})"
        for who, share, mark in shares
    ]
    if many := noise["disturbed_runs"]:
        parts.append(f"{many} of {summary['runs']} runs were over one of the first two")
    reasons = f" ({', '.join(noise['reasons'])})" if noise["reasons"] else ""
    return f"{name}: the machine was {state[noise['noisy']]}{reasons}; {', '.join(parts)}."


def where(kernel: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    if "qemu" in kernel:
        return f"Linux {kernel['release']} on one CPU, counted by -icount of {kernel['qemu']}"
    return f"Linux {kernel['release']} in user mode, {machine['cpu']}, {machine['cpus']} CPUs"


def print_to(screen: Screen, parts: Sequence[Section], below: str) -> None:
    """Print the table; lines that are wider than the terminal are wrapped."""
    for part in parts:
        columns = [Column("case"), Column("metric")]
        columns += [Column(head, right=True) for head in part.columns]
        screen.print(part.title, "bold")
        screen.table(columns, list(_styled(part)))
        screen.print()
    screen.text(below, "dim")


def _styled(part: Section) -> Iterator[list[Cell]]:
    """Yield the cells of each line, totals in bold, drops in red."""
    style = ""
    for row in part.rows:
        if row.case:
            style = "bold" if row.case == part.total_label else ""
        lost = row.metric.startswith(("driver drops,", "lost,"))
        cells = [
            (cell, "red" if lost and "[" not in cell and cell not in ("0", "-") else style)
            for cell in row.cells
        ]
        yield [(row.case, style), (row.metric, style), *cells]


def markdown(parts: Sequence[Section], below: str) -> str:
    lines: list[str] = []
    for part in parts:
        heads = ["case", "metric", *part.columns]
        lines += [f"**{_plain(part.title)}**", "", _line(heads)]
        lines.append(_line(["---", "---", *("---:" for _ in part.columns)]))
        lines += [_line([row.case, row.metric, *row.cells]) for row in part.rows]
        lines.append("")
    return "\n".join([*lines, _plain(below), ""])


def _plain(text: str) -> str:
    for char, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(char, safe)
    return text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the table as Markdown into the run's directory."""
    text = markdown(sections(directory, summaries), note(directory, summaries))
    (directory.path / MARKDOWN_NAME).write_text(text, encoding="utf-8")
