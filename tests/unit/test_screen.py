# SPDX-License-Identifier: GPL-2.0-only
"""Odd names, for terminals and for shells."""

from __future__ import annotations

import io
import os
import subprocess

from nodrop import columns, shell
from nodrop.columns import Column, clean_lines
from nodrop.screen import Screen


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
