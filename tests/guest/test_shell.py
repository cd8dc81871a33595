# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab run`` on a terminal: a shell in the guest uses it, and it is restored."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pseudo_terminal import Terminal

from guest.conftest import FLAVOUR
from lab.kernel import Artifacts

PROMPT = "lab:"


def lab(*words: str) -> Terminal:
    """Start the command on a pseudo-terminal of its own."""
    program = Path(sys.executable).with_name("nodrop-lab")
    return Terminal([program, "run", "--flavour", FLAVOUR, *words], {"TERM": "xterm"})


@pytest.fixture
def shell(artifacts: Artifacts) -> Iterator[Terminal]:
    assert artifacts
    with lab() as made:
        made.sees(PROMPT)
        yield made


def test_shell_runs_and_terminal_is_restored(shell: Terminal) -> None:
    assert shell.settings() != shell.before
    shell.press("stty size; cat /sys/module/tun/version\r")
    shell.sees(r"30 100\n\d")
    shell.press("tty; echo $((6 * 7))\r")
    shell.sees(r"/dev/tty1\n42\n")
    shell.press("exit 7\r")
    assert shell.ends() == 7
    assert shell.settings() == shell.before


def test_ctrl_c_reaches_the_guest(shell: Terminal) -> None:
    shell.press("echo before; sleep 600\r")
    shell.sees(r"before\n")
    time.sleep(0.5)
    shell.press("\x03")
    shell.sees(PROMPT)
    shell.press("echo status $?\r")
    # Wait for the prompt: before it, Ctrl-D may not end the shell.
    shell.sees(f"status 130[^$]*{PROMPT}")
    shell.press("\x04")
    assert shell.ends() == 0


def test_its_size_follows(shell: Terminal) -> None:
    shell.press("trap 'stty size' WINCH; echo $((6 * 7)); sleep 600 & wait\r")
    shell.sees(r"42\n")
    shell.resize(40, 120)
    shell.sees(r"40 120\n")


@pytest.mark.parametrize(
    ("end", "status"), [("escape", 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)]
)
def test_terminal_is_restored_whatever_ends_the_run(
    shell: Terminal, end: str | signal.Signals, status: int
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
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # it is no process, or has ended
            assert mark not in (folder / "cmdline").read_bytes()


def test_terminal_is_restored_after_a_panic(shell: Terminal) -> None:
    shell.press("echo c >/proc/sysrq-trigger\r")
    assert shell.ends() == 1
    assert shell.settings() == shell.before


def test_a_time_limit_holds_for_shells(artifacts: Artifacts) -> None:
    assert artifacts
    with lab("--timeout", "5") as shell:
        # Whether or not it has printed a prompt by then.
        assert shell.ends() == 1
        assert re.search(r"did not end within \d+ s", shell.text)
        assert shell.settings() == shell.before
