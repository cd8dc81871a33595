# SPDX-License-Identifier: GPL-2.0-only
"""Lay out tables: at full width in a pipe or file, or fitted to a terminal.

On a terminal, the least important columns are left out until the table fits. No cell is cut.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

ESSENTIAL = 9
"""The importance of a column that is never left out of a table."""
GAP = "  "

Cell = str | tuple[str, str]
"""A text, or a text and its style, such as ``("12", "bold red")``."""
Paint = Callable[[str, str], str]
"""A function that applies a style to a text."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: heading.
        importance: columns of high importance stay, of equal ones the leftmost; ESSENTIAL always.
        right: align to the right, as for numbers.
    """

    title: str
    importance: int = ESSENTIAL
    right: bool = False


@dataclass(frozen=True)
class Layout:
    """A table, ready to print.

    Attributes:
        lines: without line ends.
        left_out: titles of the columns that did not fit.
    """

    lines: list[str]
    left_out: list[str]


def clean(text: str) -> str:
    """Return a text in one line, without terminal escapes and other unprintable characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text)


def clean_lines(text: str) -> str:
    """Return a text with :func:`clean` applied to each line."""
    return "\n".join(map(clean, text.split("\n")))


def width(text: str) -> int:
    """Return the width of a clean text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def layout(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    available: int | None,
    paint: Paint = lambda text, _style: text,
) -> Layout:
    """Lay a table out.

    Args:
        columns: at least one.
        rows: as many cells each as there are columns.
        available: width of the terminal in columns; None: unlimited.
        paint: applies a style to a text.
    """
    head = [(column.title, "bold") for column in columns]
    table = [[_parts(cell) for cell in column] for column in zip(head, *rows, strict=True)]
    widths = [max(size for _, _, size in column) for column in table]
    shown = list(range(len(columns)))
    if available is not None:
        shown = [index for index in shown if columns[index].importance == ESSENTIAL]
        for index in _optional(columns):
            if _total(widths, [*shown, index]) <= available:
                shown.append(index)
        shown.sort()

    cells = []
    for index in shown:
        most, right = widths[index], columns[index].right
        padded = []
        for text, style, size in table[index]:
            pad = " " * (most - size)
            painted = paint(text, style) if style else text
            padded.append(pad + painted if right else painted + pad)
        cells.append(padded)
    lines = [GAP.join(row).rstrip(" ") for row in zip(*cells, strict=True)]
    left = [column.title for index, column in enumerate(columns) if index not in shown]
    return Layout(lines, left)


def _parts(cell: Cell) -> tuple[str, str, int]:
    """Return a cell's text, its style, and the width of the text in columns."""
    text, style = cell if isinstance(cell, tuple) else (cell, "")
    if not (text.isascii() and text.isprintable()):
        text = clean(text)
        return text, style, width(text)
    return text, style, len(text)


def _optional(columns: Sequence[Column]) -> list[int]:
    """Return the columns that may be left out, the most important first."""
    may = [index for index, column in enumerate(columns) if column.importance < ESSENTIAL]
    return sorted(may, key=lambda index: (-columns[index].importance, index))


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[index] for index in shown) + len(GAP) * (len(shown) - 1)
