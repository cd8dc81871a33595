# SPDX-License-Identifier: GPL-2.0-only
"""Running programs: timeouts, and no leftovers."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest
from stubs import programs

from nodrop import proc
from nodrop.errors import NodropError


def ends(pid: int) -> bool:
    """Return whether a process ends within a minute."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(process) as file:
        return bool(select.select([file], [], [], 60.0)[0])


MIXED = ["sh", "-c", "echo a; echo b >&2; printf c; exit 3"]


def test_status_output_and_lines(tmp_path: Path) -> None:
    lines: list[str] = []
    done = proc.run(MIXED, timeout=60, on_line=lines.append, log=tmp_path / "log")
    assert (done.status, done.output, lines) == (3, "a\nb\nc", ["a", "b", "c"])
    assert (tmp_path / "log").read_text() == "a\nb\nc\n"


@pytest.mark.parametrize("interrupted", [True, False])
def test_failure_kills_children(
    tmp_path: Path, interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in the caller, or a timeout."""
    now = time.monotonic

    def interrupt(_line: str) -> None:
        if interrupted:
            raise KeyboardInterrupt
        monkeypatch.setattr(time, "monotonic", lambda: now() + 3600)

    script = f"sleep 600 & echo $! >{tmp_path}/pid; echo begun; wait"
    with pytest.raises((KeyboardInterrupt, NodropError)) as caught:
        proc.run(["sh", "-c", script], timeout=60, on_line=interrupt)
    assert (caught.type is KeyboardInterrupt) is interrupted
    assert ends(int((tmp_path / "pid").read_text()))


def test_programs_in_sbin_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """'su' without '-' keeps the user's PATH."""
    tool = tmp_path / "sbin/insmod-of-tests"
    programs(tool.parent, {tool.name: "echo loaded"})
    monkeypatch.setattr(proc, "_ADMIN", (str(tool.parent),))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for environment in (None, {"PATH": "/usr/bin:/bin"}):
        assert proc.run([tool.name], timeout=60, env=environment).output == "loaded"


def test_empty_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a shell with PATH=: programs are found where systems have them."""
    monkeypatch.setenv("PATH", "")
    assert proc.require("sh", "dash")
    assert proc.ask("true").returncode == 0
