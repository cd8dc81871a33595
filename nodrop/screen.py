# SPDX-License-Identifier: GPL-2.0-only
"""Output of commands: colour, width, tables.

A terminal gets colour unless NO_COLOR is set; ``--color`` overrides both. A pipe or a file gets
plain lines of any width.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from nodrop import columns as tables
from nodrop.columns import Cell, Column

COLORS = ("auto", "always", "never")
DEFAULT_WIDTH = 80
"""Width of a terminal that does not report it, in columns."""
_CODES = {
    "bold": 1,
    "dim": 2,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "cyan": 36,
}


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
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
        stream: the output stream.
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
        stream: the output stream.
        color: whether to print colour.
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
        codes = [str(_CODES[word]) for word in style.split()]
        if not (self.color and codes and text):
            return text
        return f"\033[{';'.join(codes)}m{text}\033[0m"

    def print(self, text: str = "", style: str = "") -> None:
        """Print one line without wrapping it."""
        print(self.paint(tables.clean(text), style), file=self.stream)

    def text(self, text: str, style: str = "", indent: str = "", head: str = "") -> None:
        """Print a sentence, wrapped on a terminal; print nothing if it is empty.

        Args:
            head: replaces the first line's indentation; painted, and as wide as the indentation.
        """
        lines = [tables.clean(text)]
        if self.width:
            width = max(self.width - len(indent), 20)
            lines = textwrap.wrap(lines[0], width, break_on_hyphens=False)
        for line in filter(None, lines):
            print((head or indent) + self.paint(line, style), file=self.stream)
            head = ""

    def layout(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> tables.Layout:
        """Lay out a table for this screen without printing it."""
        return tables.layout(columns, rows, self.width, self.paint)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        """Print a table that fits, and name the columns that were left out."""
        made = self.layout(columns, rows)
        if made.lines:
            print("\n".join(made.lines), file=self.stream)
        if made.left_out:
            self.text(
                f"A wider terminal shows: {', '.join(title.strip() for title in made.left_out)}.",
                "dim",
            )


def _screen(arguments: argparse.Namespace, stream: TextIO) -> Screen:
    width = terminal_width(stream) if is_terminal(stream) else None
    return Screen(stream, colored(arguments.color, stream), width)


def console(arguments: argparse.Namespace) -> Screen:
    """Return the screen for data: stdout."""
    return _screen(arguments, sys.stdout)


def messages(arguments: argparse.Namespace) -> Screen:
    """Return the screen for everything else: stderr."""
    return _screen(arguments, sys.stderr)
