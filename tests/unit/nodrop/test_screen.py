# SPDX-License-Identifier: GPL-2.0-only
"""Unusual names in terminals and shells; steps on a terminal, in a file and quiet."""

from __future__ import annotations

import io
import os
import subprocess

import pytest
from rich.console import Console

from nodrop import columns, shell
from nodrop.columns import Column, clean_lines
from nodrop.progress import Progress
from nodrop.screen import Screen


def test_width_of_wide_characters() -> None:
    assert [columns.width(text) for text in ("tun", "隧道", "e\u0301")] == [3, 4, 1]


def test_terminal_escapes_are_removed() -> None:
    assert columns.clean("a\033[31mb\nc\udc80") == "a?[31mb c?"
    assert clean_lines("a\x1b]0;x\x07\nb\x9b31m") == "a?]0;x?\nb?31m"
    text = io.StringIO()
    Screen(text, False, None).table([Column("device")], [["tap\033]0;x\a"]])
    assert text.getvalue().replace("\n", "").isprintable()


def test_shell_quoting() -> None:
    for name in ("a;id", "$(id)", "it's", "a\\b", "e\x1b[31mx", "b\udcff\udcfez", "-n", "ü", "*"):
        line = f"printf %s {shell.join(name)}"
        assert line.isprintable()
        done = subprocess.run(["bash", "-c", os.fsencode(line)], capture_output=True, check=True)
        assert done.stdout == os.fsencode(name)


def made(text: io.StringIO, *, terminal: bool = False, quiet: bool = False) -> Progress:
    console = Console(file=text, force_terminal=terminal, width=200)
    return Progress(quiet=quiet, console=console)


def test_step_prints_two_lines() -> None:
    text = io.StringIO()
    with made(text) as progress, progress.step("Build it"):
        assert len(text.getvalue().splitlines()) == 1
    with pytest.raises(ValueError, match="x"), made(text) as progress, progress.step("Build it"):
        raise ValueError("x")
    assert len(text.getvalue().splitlines()) == 4


@pytest.mark.parametrize("quiet", [True, False])
def test_on_a_terminal(quiet: bool) -> None:
    text = io.StringIO()
    title = "Build [/it]"  # a name may look like rich's markup
    with made(text, terminal=True, quiet=quiet) as progress, progress.step(title, 2) as step:
        step.update("[/half]", done=1)
    assert (title in text.getvalue()) is not quiet
