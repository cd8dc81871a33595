# SPDX-License-Identifier: GPL-2.0-only
"""Completion in real shells, which find it where the packages put it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
PROMPT = "ready>"
STUB = """\
#!/bin/sh
[ "$1" != __complete ] || exec {nodrop} "$@"
printf 'got '
printf '[%s]' "$@"
"""
"""In the place of the command: completes as it does, and tells what else it is given."""
ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[a-zA-Z]|\x1b[=>()][0B]?|\x1b\][^\a\x1b]*(?:\a|\x1b\\)|\r")


@dataclass
class Terminal:
    """A shell on a terminal."""

    fd: int

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def expect(self, pattern: str) -> str:
        """Return what was shown until the pattern came."""
        shown, late = "", time.monotonic() + PATIENCE_S
        while not re.search(pattern, ESCAPES.sub("", shown)):
            ready, _, _ = select.select([self.fd], [], [], max(late - time.monotonic(), 0))
            assert ready, f"no {pattern!r} in {ESCAPES.sub('', shown)!r}"
            shown += os.read(self.fd, 4096).decode(errors="replace")
        return ESCAPES.sub("", shown)


@contextmanager
def running(argv: list[str], environment: dict[str, str]) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, **environment},
        cwd=REPOSITORY,
    )
    os.close(theirs)
    try:
        yield Terminal(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """A shell of a user that has nodrop installed."""
    name: str = request.param
    assert shutil.which(name), f"{name} is missing; scripts/packages-kernels.txt has it"
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
    with running([name, "-i"], environment) as terminal:
        terminal.expect(PROMPT)
        yield terminal


def test_command(shell: Terminal) -> None:
    shell.type("nodrop to\t\n")
    shell.expect(r"got \[top\]")


def test_value_behind_the_equals_sign(shell: Terminal) -> None:
    shell.type("nodrop --color=nev\t\n")
    shell.expect(r"got \[--color=never\]")


def test_directory(shell: Terminal, tmp_path: Path) -> None:
    (tmp_path / "results-of-mine").mkdir()
    shell.type(f"nodrop install --source {tmp_path}/results-of\t\n")
    shell.expect(r"got \[install\]\[--source\]\[\S*/results-of-mine/?\]")


def test_word_that_cannot_be(shell: Terminal) -> None:
    shell.type("nodrop fly \t\n")
    shown = shell.expect(r"got \[fly\]")
    assert "nodrop:" not in shown
