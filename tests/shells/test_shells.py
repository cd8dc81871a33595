# SPDX-License-Identifier: GPL-2.0-only
"""Completion in real shells, with the files where the packages install them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pseudo_terminal import PseudoTerminal

REPOSITORY = Path(__file__).resolve().parents[2]
PROMPT = "ready>"
STUB = """\
#!/bin/sh
[ "$1" != __complete ] || exec {nodrop} "$@"
printf 'got '
printf '[%s]' "$@"
"""
"""Replaces the command: it completes as the command does, and else prints its arguments."""


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PseudoTerminal]:
    """A shell with nodrop's completion installed."""
    name: str = request.param
    assert shutil.which(name), f"{name} is missing; scripts/packages.txt has it"
    share = tmp_path / "share"
    subprocess.run(
        [REPOSITORY / "packaging/lay", "share", share, "vendor-completions"], check=True, timeout=60
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    stub = programs / "nodrop"
    stub.write_text(STUB.format(nodrop=Path(sys.executable).parent / "nodrop"))
    stub.chmod(0o755)
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
        "TERM": "vt100",
        "XDG_DATA_DIRS": f"{share}:/usr/share",
        "PS1": PROMPT,
    }
    (tmp_path / ".zshrc").write_text(
        f"fpath=({share}/zsh/vendor-completions $fpath)\nautoload -Uz compinit\ncompinit -u\n"
        f"PROMPT='{PROMPT}'\nunsetopt zle_bracketed_paste 2>/dev/null\n"
    )
    (tmp_path / ".bashrc").write_text(
        f". /usr/share/bash-completion/bash_completion\nPS1='{PROMPT}'\n"
        "bind 'set enable-bracketed-paste off'\n"
    )
    config = tmp_path / ".config/fish"
    config.mkdir(parents=True)
    (config / "config.fish").write_text(
        f"function fish_prompt; echo -n '{PROMPT}'; end\nset -g fish_greeting\n"
        "set -g fish_autosuggestion_enabled 0\n"
    )
    with PseudoTerminal([name, "-i"], environment, columns=200) as terminal:
        terminal.sees(PROMPT)
        yield terminal


def test_command(shell: PseudoTerminal) -> None:
    shell.press("nodrop to\t\n")
    shell.sees(r"got \[top\]")


def test_value_behind_the_equals_sign(shell: PseudoTerminal) -> None:
    shell.press("nodrop --color=nev\t\n")
    shell.sees(r"got \[--color=never\]")


def test_directory(shell: PseudoTerminal, tmp_path: Path) -> None:
    (tmp_path / "results-of-mine").mkdir()
    shell.press(f"nodrop install --source {tmp_path}/results-of\t\n")
    shell.sees(r"got \[install\]\[--source\]\[\S*/results-of-mine/?\]")


def test_word_that_cannot_be(shell: PseudoTerminal) -> None:
    shell.press("nodrop fly \t\n")
    shown = shell.sees(r"got \[fly\]")
    assert "nodrop:" not in shown
