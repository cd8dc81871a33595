# SPDX-License-Identifier: GPL-2.0-only
"""Colour, width and tables, on real terminals where it matters."""

from __future__ import annotations

import argparse
import io
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from typing import TextIO

import pytest

from nodrop import columns, screen
from nodrop.columns import Cell, Column
from nodrop.screen import Screen

COLUMNS = [Column("device"), Column("owner", 2), Column("drops", 5, right=True), Column("qdisc", 2)]
ROWS: list[list[Cell]] = [
    ["tun0", "openvpn", ("12", "red"), "fq_codel"],
    ["tap11", "", "0", "noqueue"],
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """A terminal of 50 columns."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    with os.fdopen(theirs, "w") as stream:
        yield stream
    os.close(ours)


def made(width: int | None) -> columns.Layout:
    return columns.layout(COLUMNS, ROWS, width)


def test_a_pipe_gets_everything_aligned() -> None:
    assert made(None).lines == [
        "device  owner    drops  qdisc",
        "tun0    openvpn     12  fq_codel",
        "tap11                0  noqueue",
    ]
    assert made(None).left_out == []


def test_a_table_that_just_fits() -> None:
    widest = max(map(len, made(None).lines))
    assert made(widest) == made(None)
    assert made(widest - 1).left_out == ["qdisc"]


def test_the_least_important_goes_first() -> None:
    table = made(21)
    assert table.left_out == ["owner", "qdisc"]
    assert table.lines == ["device  drops", "tun0       12", "tap11       0"]
    assert made(6).left_out == ["owner", "drops", "qdisc"]


def test_rows_become_blocks() -> None:
    table = made(5)
    assert table.left_out == []
    assert table.lines == [
        *("device  tun0", "owner   openvpn", "drops   12", "qdisc   fq_codel", ""),
        *("device  tap11", "owner", "drops   0", "qdisc   noqueue"),
    ]


def test_blocks_wrap_long_values() -> None:
    table = columns.layout([Column("check"), Column("words")], [["a", "one two three four"]], 18)
    assert table.lines == ["check  a", "words  one two", "       three four"]


def test_no_rows() -> None:
    assert columns.layout(COLUMNS, [], None).lines == ["device  owner  drops  qdisc"]


def test_wide_characters_are_counted_as_two() -> None:
    assert columns.width("tun") == 3
    assert columns.width("隧道") == 4
    assert columns.width("e\u0301") == 1


def test_nothing_reaches_the_terminal_that_it_would_obey() -> None:
    assert columns.clean("a\033[31mb\nc\udc80") == "a?[31mb c?"
    text = io.StringIO()
    Screen(text, False, None).table([Column("device")], [["tap\033]0;x\a"]])
    assert "\033" not in text.getvalue()
    assert "\a" not in text.getvalue()


def test_style_only_with_color() -> None:
    text = io.StringIO()
    Screen(text, True, None).table(COLUMNS, ROWS)
    assert "\033[31m12\033[0m" in text.getvalue()
    assert Screen(text, False, None).paint("x", "bold red") == "x"
    assert Screen(text, True, None).paint("x", "bold red") == "\033[1;31mx\033[0m"


def test_color_takes_no_room() -> None:
    painted = Screen(io.StringIO(), True, None).layout(COLUMNS, ROWS).lines
    plain = [line.replace("\033[1m", "").replace("\033[31m", "") for line in painted]
    assert [line.replace("\033[0m", "") for line in plain] == made(None).lines


def test_a_terminal_is_told_what_it_misses() -> None:
    text = io.StringIO()
    Screen(text, False, 21).table(COLUMNS, ROWS)
    said = text.getvalue().splitlines()
    assert said[-2:] == ["A wider terminal", "shows: owner, qdisc."]


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("auto", {}, True),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"NO_COLOR": ""}, True),
        ("auto", {"TERM": "dumb"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("always", {"TERM": "dumb"}, True),
        ("never", {}, False),
    ],
)
def test_color_of_a_terminal(
    choice: str,
    environment: dict[str, str],
    expected: bool,
    terminal: TextIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal)
    arguments = argparse.Namespace(color=choice)
    assert screen.console(arguments).color is expected
    rich = screen.rich_console(choice)
    assert (rich.color_system is not None) is expected
    assert rich.is_terminal is (environment.get("TERM") != "dumb")


@pytest.mark.parametrize(("choice", "expected"), [("auto", False), ("always", True)])
def test_color_of_a_pipe(choice: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    made = screen.console(argparse.Namespace(color=choice))
    assert (made.color, made.width) == (expected, None)
    assert (screen.rich_console(choice).color_system is not None) is expected


@pytest.mark.parametrize(("told", "width"), [("40", 40), ("0", 50), ("wide", 50), ("", 50)])
def test_width_of_a_terminal(
    told: str, width: int, terminal: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", told)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert screen.talk(argparse.Namespace(color="auto")).width == width


def test_a_terminal_without_a_width(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    monkeypatch.setattr(sys, "stdout", terminal)
    assert screen.console(argparse.Namespace(color="auto")).width == 80


def test_closed_streams() -> None:
    assert not screen.is_terminal(None)
    stream = io.StringIO()
    stream.close()
    assert not screen.is_terminal(stream)
