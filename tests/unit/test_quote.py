# SPDX-License-Identifier: GPL-2.0-only
"""Names that are no plain words: a shell gets them back, a terminal is not told what to do."""

from __future__ import annotations

import os
import subprocess

import pytest

from nodrop import shell
from nodrop.columns import clean_lines

NAMES = ["tun0", "a;id", "$(id)", "it's", "a\\b", "e\x1b[31mx", "b\udcff\udcfez", "-n", "ü", "*"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_gets_the_name(name: str) -> None:
    line = f"printf %s {shell.quote(name)}"
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", os.fsencode(line)], capture_output=True, check=True).stdout
    assert said == os.fsencode(name)


def test_join() -> None:
    assert shell.join("ip", "link", "set", "a b") == "ip link set 'a b'"


def test_clean_lines_keeps_lines_only() -> None:
    assert clean_lines("a\x1b]0;x\x07\nb\x9b31m") == "a?]0;x?\nb?31m"
