# SPDX-License-Identifier: GPL-2.0-only
"""The table of a run, for a terminal and a Markdown file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.report import noise
from bench.report.files import MARKDOWN_NAME, RunDirectory
from bench.report.tablerows import Section, section
from nodrop.columns import Cell, Column
from nodrop.screen import Screen

SET_UP = ("ip", "tc")
"""Programs of every scenario; they carry no packets."""


def sections(directory: RunDirectory, summaries: Mapping[str, Any]) -> list[Section]:
    """Return the parts of a run's table."""
    variants = directory.meta["variants"]
    return [
        section(directory.scenarios[name], summary, variants) for name, summary in summaries.items()
    ]


def caption(summaries: Mapping[str, Any]) -> str:
    """Return the line that says where and how the numbers were made.

    The scenarios may be from several runs; where these differ, each is named.
    """
    lengths = "; ".join(
        f"{name}: {summary['pairs']} {'pair' if summary['pairs'] == 1 else 'pairs'} "
        f"of {summary['seconds']:g} s"
        for name, summary in summaries.items()
    )
    places = _shared({name: _place(summary) for name, summary in summaries.items()})
    return (
        f"{places}. {lengths}. Medians; ratios pair by pair with their 95 % intervals "
        "(fewer than six: the range). A ring has txqueuelen slots."
    )


def note(directory: RunDirectory, summaries: Mapping[str, Any]) -> str:
    """Return the text below a run's table."""
    parts = [caption(summaries)]
    versions = directory.meta.get("programs", {})
    if words := ", ".join(f"{name} {of}" for name, of in versions.items() if name not in SET_UP):
        parts.append(f"With {words}.")
    if times := directory.meta["continued"]:
        parts.append(f"Interrupted and continued: {', '.join(times)}.")
    parts += [noise.sentence(*item) for item in summaries.items()]
    return " ".join(parts)


def _place(summary: Mapping[str, Any]) -> str:
    kernel, machine = summary["kernel"], summary["machine"]
    return f"Linux {kernel['release']} in user mode, {machine['cpu']}, {machine['cpus']} CPUs"


def _shared(parts: Mapping[str, str]) -> str:
    """Return a text about all scenarios, which names them only where they differ."""
    by_words: dict[str, list[str]] = {}
    for name, words in parts.items():
        by_words.setdefault(words, []).append(name)
    if len(by_words) == 1:
        return next(iter(by_words))
    return "; ".join(f"{words} ({', '.join(names)})" for words, names in by_words.items() if words)


def print_to(screen: Screen, parts: Sequence[Section], below: str) -> None:
    """Print the table; lines that are wider than the terminal are wrapped."""
    for part in parts:
        columns = [Column("case"), Column("metric")]
        columns += [Column(head, right=True) for head in part.columns]
        screen.print(part.title, "bold")
        screen.table(columns, list(_cells(part)))
        screen.print()
    screen.text(below, "dim")


def _cells(part: Section) -> Iterator[list[Cell]]:
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
    """Return the table as Markdown."""
    lines: list[str] = []
    for part in parts:
        heads = ["case", "metric", *part.columns]
        lines += [f"**{_plain(part.title)}**", "", _line(heads)]
        lines.append(_line(["---", "---", *("---:" for _ in part.columns)]))
        lines += [_line([row.case, row.metric, *row.cells]) for row in part.rows]
        lines.append("")
    return "\n".join([*lines, _plain(below), ""])


def _plain(text: str) -> str:
    """Escape text for a cell."""
    for char, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(char, safe)
    return text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the table as Markdown into the run's directory."""
    text = markdown(sections(directory, summaries), note(directory, summaries))
    (directory.path / MARKDOWN_NAME).write_text(text, encoding="utf-8")
