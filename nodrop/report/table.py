# SPDX-License-Identifier: GPL-2.0-only
"""The table of a run, for a terminal, a text file and a Markdown file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodrop.report.files import MARKDOWN_NAME, TABLE_NAME, RunDirectory
from nodrop.report.rows import ALL_CASES, Section, section

TEXT_WIDTH = 140
DISTURBED = 0.05
"""Share of the CPUs that other programs may take before a run is called disturbed."""


def sections(directory: RunDirectory, summaries: Mapping[str, Any]) -> list[Section]:
    """Return the parts of a run's table."""
    variants = directory.meta["variants"]
    return [
        section(directory.scenarios[name], summary, variants) for name, summary in summaries.items()
    ]


def caption(summaries: Mapping[str, Any]) -> str:
    """Return the line that says where and how the numbers were made."""
    any_summary = next(iter(summaries.values()))
    kernel, machine = any_summary["kernel"], any_summary["machine"]
    lengths = "; ".join(
        f"{name}: {summary['pairs']} {'pair' if summary['pairs'] == 1 else 'pairs'} "
        f"of {summary['seconds']:g} s"
        for name, summary in summaries.items()
    )
    others = any_summary.get("others_cpu_share") or 0.0
    disturbed = (
        f" Other programs took {others:.0%} of the CPUs meanwhile: do not trust the speeds."
        if others > DISTURBED
        else ""
    )
    return (
        f"Linux {kernel['release']} in user mode, {machine['cpu']}, {machine['cpus']} CPUs. "
        f"{lengths}. Medians; ratios pair by pair with their 95 % intervals "
        f"(fewer than six: the range). A ring has txqueuelen slots.{disturbed}"
    )


def render(part: Section) -> Table:
    """Return a part of the table for a console."""
    table = Table(title=part.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    for head in part.columns:
        table.add_column(head, justify="right", no_wrap=True)
    previous = ""
    for row in part.rows:
        if row.case and previous:
            table.add_section()
        previous = row.case or previous
        style = "bold" if previous == ALL_CASES else ""
        table.add_row(row.case, row.metric, *(_cell(row.metric, cell) for cell in row.cells))
        table.rows[-1].style = style
    return table


def _cell(metric: str, cell: str) -> Text:
    lost = metric.startswith("lost,") and "[" not in cell and cell not in ("0", "-")
    return Text(cell, style="red" if lost else "")


def print_to(console: Console, parts: Sequence[Section], note: str) -> None:
    """Print the table."""
    for part in parts:
        console.print(render(part))
    console.print(note, style="dim", markup=False, highlight=False)


def markdown(parts: Sequence[Section], note: str) -> str:
    """Return the table as Markdown."""
    lines: list[str] = []
    for part in parts:
        heads = ["case", "metric", *part.columns]
        lines += [f"**{part.title}**", "", _line(heads)]
        lines.append(_line(["---", "---", *("---:" for _ in part.columns)]))
        lines += [_line([row.case, row.metric, *row.cells]) for row in part.rows]
        lines.append("")
    return "\n".join([*lines, note, ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the table's two files beside the raw data."""
    parts, note = sections(directory, summaries), caption(summaries)
    with (directory.path / TABLE_NAME).open("w", encoding="utf-8") as file:
        console = Console(file=file, width=TEXT_WIDTH, color_system=None)
        print_to(console, parts, note)
    (directory.path / MARKDOWN_NAME).write_text(markdown(parts, note), encoding="utf-8")
