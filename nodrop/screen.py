# SPDX-License-Identifier: GPL-2.0-only
"""Output of commands: colour, width, tables.

A terminal gets colour unless NO_COLOR is set; ``--color`` overrides both. On a terminal, the least
important columns of a table are left out until it fits; no cell is cut. A pipe or a file gets plain
lines of any width.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TextIO, Union

ESSENTIAL = 9
"""The importance of a column that is never left out of a table."""
NO_VALUE = ("-", "")
"""Texts of cells whose value is unknown, or that have none."""
GAP = "  "
COLORS = ("auto", "always", "never")
DEFAULT_WIDTH = 80
"""Width of a terminal that does not report it, in columns."""
_NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}

Cell = Union[str, tuple[str, str]]
"""A text, or a text and its style, such as ``("12", "bold red")``."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        importance: columns of high importance stay, of equal ones the leftmost; ESSENTIAL always.
        right: align to the right, as for numbers.
    """

    title: str
    importance: int = ESSENTIAL
    right: bool = False


def clean(text: str) -> str:
    """Return a text in one line, without terminal escapes and other unprintable characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def clean_lines(text: str) -> str:
    return "\n".join(map(clean, text.split("\n")))


def nagios_text(status: int, text: str) -> str:
    """Return the line of a monitoring plugin with an exit status, without a vertical bar."""
    return f"NODROP {_NAGIOS[status]} - {clean(text).replace('|', '_')}"


def width(text: str) -> int:
    """Return the width of a clean text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def can_move(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal whose cursor can be moved."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"


def colored(choice: str, stream: TextIO | None) -> bool:
    """Return whether a stream gets colour.

    Args:
        choice: one of COLORS; "always" overrides NO_COLOR.
    """
    if choice == "auto":
        return can_move(stream) and not os.environ.get("NO_COLOR")
    return choice == "always"


def terminal_width(stream: TextIO) -> int:
    """Return the width of a terminal: COLUMNS, or as it reports, or DEFAULT_WIDTH."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


@dataclass(frozen=True)
class Screen:
    """An output stream and its format.

    Attributes:
        width: width of its terminal in columns; None: unlimited.
    """

    stream: TextIO
    color: bool
    width: int | None

    def paint(self, text: str, style: str) -> str:
        """Return a text in a style of colours, ``bold`` and ``dim``.

        Raises:
            KeyError: there is no such style.
        """
        codes = [str(_CODES[name]) for name in style.split()]
        if not (self.color and codes and text):
            return text
        return f"\033[{';'.join(codes)}m{text}\033[0m"

    def print(self, text: str = "", style: str = "") -> None:
        """Print one line without wrapping it."""
        print(self.paint(clean(text), style), file=self.stream)

    def text(self, text: str, style: str = "", indent: str = "", head: str = "") -> None:
        """Print a sentence, wrapped on a terminal; print nothing if it is empty.

        Args:
            head: replaces the first line's indentation; painted, and as wide as the indentation.
        """
        lines = [clean(text)]
        if self.width:
            available = max(self.width - len(indent), 20)
            lines = textwrap.wrap(lines[0], available, break_on_hyphens=False)
        for line in filter(None, lines):
            print((head or indent) + self.paint(line, style), file=self.stream)
            head = ""

    def layout(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]
    ) -> tuple[list[str], list[str]]:
        """Return the lines of a table, and the titles of the columns that do not fit."""
        head = [(column.title, "bold") for column in columns]
        table = [[_measured(cell) for cell in column] for column in zip(head, *rows)]
        widths = [max(size for _, _, size in column) for column in table]
        # A column without any known value is left out before the others.
        ranked = [
            replace(column, importance=-1)
            if column.importance < ESSENTIAL and all(text in NO_VALUE for text, _, _ in cells[1:])
            else column
            for column, cells in zip(columns, table)
        ]
        shown = _shown(ranked, widths, self.width)
        cells = []
        for index in shown:
            padded = []
            for text, style, size in table[index]:
                pad = " " * (widths[index] - size)
                painted = self.paint(text, style) if style else text
                padded.append(pad + painted if columns[index].right else painted + pad)
            cells.append(padded)
        lines = [GAP.join(row).rstrip(" ") for row in zip(*cells)]
        left_out = [column.title for index, column in enumerate(columns) if index not in shown]
        return lines, left_out

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        """Print a table that fits, and name the columns that were left out."""
        lines, left_out = self.layout(columns, rows)
        print("\n".join(lines), file=self.stream)
        if left_out:
            titles = ", ".join(title.strip() for title in left_out)
            self.text(f"A wider terminal shows: {titles}.", "dim")


def _measured(cell: Cell) -> tuple[str, str, int]:
    """Return a cell's text, its style, and the width of the text in columns."""
    text, style = cell if isinstance(cell, tuple) else (cell, "")
    text = clean(text)
    return text, style, width(text)


def _shown(columns: Sequence[Column], widths: Sequence[int], available: int | None) -> list[int]:
    if available is None:
        return list(range(len(columns)))
    shown = [index for index, column in enumerate(columns) if column.importance == ESSENTIAL]
    optional = (index for index in range(len(columns)) if index not in shown)
    for index in sorted(optional, key=lambda index: (-columns[index].importance, index)):
        total = sum(widths[other] for other in (*shown, index)) + len(GAP) * len(shown)
        if total <= available:
            shown.append(index)
    return sorted(shown)


def _screen(arguments: argparse.Namespace, stream: TextIO) -> Screen:
    columns = terminal_width(stream) if is_terminal(stream) else None
    return Screen(stream, colored(arguments.color, stream), columns)


def console(arguments: argparse.Namespace) -> Screen:
    """Return the screen for data: stdout."""
    return _screen(arguments, sys.stdout)


def messages(arguments: argparse.Namespace) -> Screen:
    """Return the screen for everything else: stderr."""
    return _screen(arguments, sys.stderr)
