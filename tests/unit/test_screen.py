# SPDX-License-Identifier: GPL-2.0-only
"""Colour, width, tables and odd names, on real terminals where it matters."""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from typing import TextIO

import pytest

from nodrop import columns, screen, shell
from nodrop.columns import Cell, Column, clean_lines
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


@pytest.mark.parametrize(
    ("width", "left_out", "lines"),
    [
        (
            None,
            [],
            [
                "device  owner    drops  qdisc",
                "tun0    openvpn     12  fq_codel",
                "tap11                0  noqueue",
            ],
        ),
        # The least important goes first.
        (21, ["owner", "qdisc"], ["device  drops", "tun0       12", "tap11       0"]),
        (6, ["owner", "drops", "qdisc"], ["device", "tun0", "tap11"]),
    ],
)
def test_table(width: int | None, left_out: list[str], lines: list[str]) -> None:
    table = made(width)
    assert (table.left_out, table.lines) == (left_out, lines)


def test_a_table_that_just_fits() -> None:
    widest = max(map(len, made(None).lines))
    assert made(widest) == made(None)
    assert made(widest - 1).left_out == ["qdisc"]


def test_wide_characters_are_counted_as_two() -> None:
    assert [columns.width(text) for text in ("tun", "隧道", "e\u0301")] == [3, 4, 1]


def test_nothing_reaches_the_terminal_that_it_would_obey() -> None:
    assert columns.clean("a\033[31mb\nc\udc80") == "a?[31mb c?"
    assert clean_lines("a\x1b]0;x\x07\nb\x9b31m") == "a?]0;x?\nb?31m"
    text = io.StringIO()
    Screen(text, False, None).table([Column("device")], [["tap\033]0;x\a"]])
    assert text.getvalue().replace("\n", "").isprintable()


def test_a_shell_gets_the_name() -> None:
    for name in ("a;id", "$(id)", "it's", "a\\b", "e\x1b[31mx", "b\udcff\udcfez", "-n", "ü", "*"):
        line = f"printf %s {shell.join(name)}"
        assert line.isprintable()
        done = subprocess.run(["bash", "-c", os.fsencode(line)], capture_output=True, check=True)
        assert done.stdout == os.fsencode(name)


def test_color_takes_no_room() -> None:
    painted = "\n".join(Screen(io.StringIO(), True, None).layout(COLUMNS, ROWS).lines)
    assert "\033[31m12\033[0m" in painted
    assert re.sub(r"\033\[[0-9;]*m", "", painted).split("\n") == made(None).lines
    assert Screen(io.StringIO(), False, None).paint("x", "bold red") == "x"


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("auto", {}, True),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"NO_COLOR": ""}, True),
        ("auto", {"TERM": "dumb"}, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, True),
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
    assert screen.console(argparse.Namespace(color=choice)).color is expected
    rich = screen.rich_console(choice)
    assert (rich.color_system is not None) is expected
    assert rich.is_terminal is (environment.get("TERM") != "dumb")


def test_width_of_a_terminal(terminal: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    arguments = argparse.Namespace(color="auto")
    for told, width in (("40", 40), ("0", 50), ("wide", 50), ("", 50)):
        monkeypatch.setenv("COLUMNS", told)
        assert screen.console(arguments).width == width
    monkeypatch.delenv("COLUMNS")
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert screen.console(arguments).width == 80


def test_closed_streams() -> None:
    stream = io.StringIO()
    stream.close()
    assert not screen.is_terminal(stream)
    assert not screen.is_terminal(None)
