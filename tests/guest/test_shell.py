# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab run`` on a terminal: a shell in the guest has it, and gives it back."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from lab.kernel import Artifacts

FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "debug")
PROMPT = "lab:"
PATIENCE_S = 60.0


class Shell:
    """The command on a pseudo-terminal of its own."""

    def __init__(self, *words: str) -> None:
        self._master, self._slave = os.openpty()
        self.resize(30, 100)
        self.before = self.settings()
        self.text = ""
        self.process = subprocess.Popen(
            [Path(sys.executable).with_name("nodrop-lab"), "run", "--flavour", FLAVOUR, *words],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        os.close(self._master)
        os.close(self._slave)

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def sees(self, pattern: str) -> str:
        """Wait for a text, which is then forgotten with all before it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            ready = select.select([self._master], [], [], max(left, 0))[0]
            assert ready, f"no {pattern!r} in {self.text!r}"
            self.text += os.read(self._master, 65536).decode(errors="replace")
        self.text = self.text[match.end() :]
        return match[0]

    def ends(self) -> int:
        """Wait for the end; the pseudo-terminal must not fill up before."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.05)[0]:
                self.text += os.read(self._master, 65536).decode(errors="replace")
        assert self.process.poll() is not None, self.text
        return self.process.returncode


@pytest.fixture
def shell(artifacts: Artifacts) -> Iterator[Shell]:
    assert artifacts
    with Shell() as made:
        made.sees(PROMPT)
        yield made


def test_it_is_a_shell_and_the_terminal_comes_back(shell: Shell) -> None:
    assert shell.settings() != shell.before
    shell.press("stty size; cat /sys/module/tun/version\r")
    shell.sees(r"30 100\r\n\d")
    shell.press("tty; echo $((6 * 7))\r")
    shell.sees(r"/dev/tty1\r\n42\r\n")
    shell.press("exit 7\r")
    assert shell.ends() == 7
    assert shell.settings() == shell.before


def test_ctrl_c_is_the_guests(shell: Shell) -> None:
    shell.press("echo before; sleep 600\r")
    shell.sees(r"before\r\n")
    time.sleep(0.5)
    shell.press("\x03")
    shell.sees(PROMPT)
    shell.press("echo status $?\r")
    # Before its next prompt a shell does not take this for the end, on any terminal.
    shell.sees(f"status 130[^$]*{PROMPT}")
    shell.press("\x04")
    assert shell.ends() == 0


def test_its_size_follows(shell: Shell) -> None:
    shell.press("trap 'stty size' WINCH; echo $((6 * 7)); sleep 600 & wait\r")
    shell.sees(r"42\r\n")
    shell.resize(40, 120)
    shell.sees(r"40 120\r\n")


@pytest.mark.parametrize(
    ("end", "status"), [("escape", 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)]
)
def test_the_terminal_comes_back_whatever_ends_it(
    shell: Shell, end: str | signal.Signals, status: int
) -> None:
    shell.press("trap '' INT TERM HUP; sleep 600\r")
    shell.sees("sleep 600")
    if isinstance(end, signal.Signals):
        shell.process.send_signal(end)
    else:
        shell.press("\x1d")
    assert shell.ends() == status
    assert shell.settings() == shell.before
    mark = f"umid=nodrop-{shell.process.pid}".encode()
    words = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(mark in line for line in words)


def test_the_terminal_comes_back_after_a_panic(shell: Shell) -> None:
    shell.press("echo c >/proc/sysrq-trigger\r")
    assert shell.ends() == 1
    assert "ended before the command did" in shell.text
    assert shell.settings() == shell.before


def test_a_time_limit_holds_for_shells(artifacts: Artifacts) -> None:
    assert artifacts
    with Shell("--timeout", "5") as shell:
        # Whether it has come to its prompt by then or not.
        assert shell.ends() == 1
        assert re.search(r"did not end within \d+ s", shell.text)
        assert shell.settings() == shell.before
