# SPDX-License-Identifier: GPL-2.0-only
"""What a command prints on: colour, width, tables.

Colour goes to a terminal that has some, unless NO_COLOR is set or ``--color`` says
otherwise. A pipe or a file gets plain lines of any width.
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
"""Columns of a terminal that does not know how many it has."""
_CODES = {
    "bold": 1,
    "dim": 2,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "cyan": 36,
}


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether people look at a stream."""
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
        choice: one of COLORS; what the command line says stands above NO_COLOR.
        stream: where it goes.
    """
    if choice == "auto":
        return can_move(stream) and not os.environ.get("NO_COLOR")
    return choice == "always"


def terminal_width(stream: TextIO) -> int:
    """Return the columns of a terminal: COLUMNS, or what it says, which may be nothing."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


@dataclass(frozen=True)
class Screen:
    """A stream and how to print on it.

    Attributes:
        stream: where it goes.
        color: whether it gets colour.
        width: columns of its terminal; None where lines may be as long as they are.
    """

    stream: TextIO
    color: bool
    width: int | None

    def paint(self, text: str, style: str) -> str:
        """Return a text in a style: names of colours, ``bold``, ``dim``.

        Raises:
            KeyError: there is no such style.
        """
        codes = [str(_CODES[word]) for word in style.split()]
        if not (self.color and codes and text):
            return text
        return f"\033[{';'.join(codes)}m{text}\033[0m"

    def print(self, text: str = "", style: str = "") -> None:
        """Print one line, as it is."""
        print(self.paint(tables.clean(text), style), file=self.stream)

    def text(self, text: str, style: str = "", indent: str = "", head: str = "") -> None:
        """Print a sentence, in as many lines as it needs on a terminal; nothing of an empty one.

        Args:
            head: painted already, as wide as the indentation; it is in the place of the first.
        """
        lines = [tables.clean(text)]
        if self.width:
            room = max(self.width - len(indent), 20)
            lines = textwrap.wrap(lines[0], room, break_on_hyphens=False)
        for line in filter(None, lines):
            print((head or indent) + self.paint(line, style), file=self.stream)
            head = ""

    def layout(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> tables.Layout:
        """Return a table for this screen, for those that print it by themselves."""
        return tables.layout(columns, rows, self.width, self.paint)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        """Print a table that fits, and what did not fit."""
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


def talk(arguments: argparse.Namespace) -> Screen:
    """Return the screen for everything else: stderr."""
    return _screen(arguments, sys.stderr)
