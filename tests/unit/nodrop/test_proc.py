# SPDX-License-Identifier: GPL-2.0-only
"""Running programs: timeouts, no leftovers, and programs that must not be interrupted."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

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
    done, interrupted = proc.run_uninterrupted(MIXED)
    assert (done.status, done.output, interrupted) == (3, "a\nb\nc", False)


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


SLOW = "echo begun; sleep 0.3; echo half; sleep 0.3; echo done >{0}/end; printf end"
IGNORING = f"trap '' INT HUP TERM; {SLOW}"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_run_uninterrupted_survives_an_exception(tmp_path: Path, kind: type[BaseException]) -> None:
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        raise kind

    ignoring = ["sh", "-c", IGNORING.format(tmp_path)]
    if kind is KeyboardInterrupt:
        assert proc.run_uninterrupted(ignoring, on_line=fail)[1]
    else:
        with pytest.raises(kind):
            proc.run_uninterrupted(ignoring, on_line=fail)
    assert (tmp_path / "end").exists()
    assert lines == ["begun", "half", "end"]


def test_run_uninterrupted_passes_an_interrupt_on(tmp_path: Path) -> None:
    interrupt = Mock(side_effect=KeyboardInterrupt)
    slow = ["sh", "-c", SLOW.format(tmp_path)]
    done, interrupted = proc.run_uninterrupted(slow, on_line=interrupt)
    assert interrupted
    assert done.status != 0
    assert not (tmp_path / "end").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_run_uninterrupted_survives_its_caller(tmp_path: Path, number: int) -> None:
    """And signals, except for SIGKILL."""
    script = f"echo $$ >{tmp_path}/pid; {IGNORING.format(tmp_path)}"
    ready, start = os.pipe()
    caller = os.fork()
    if not caller:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        begun = os.fdopen(start, "w", buffering=1)
        with suppress(BaseException):
            proc.run_uninterrupted(
                ["sh", "-c", script], on_line=lambda line: print(line, file=begun)
            )
        os._exit(0)
    os.close(start)
    assert os.read(ready, 1)
    os.kill(caller, number)
    if number != signal.SIGKILL:
        os.kill(int((tmp_path / "pid").read_text()), number)
    os.waitpid(caller, 0)
    end = time.monotonic() + 60
    while not (tmp_path / "end").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert (tmp_path / "end").exists()


def test_programs_in_sbin_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """'su' without '-' keeps the user's PATH."""
    tool = tmp_path / "sbin/insmod-of-tests"
    programs(tool.parent, {tool.name: "echo loaded"})
    monkeypatch.setattr(proc, "_ADMIN", (str(tool.parent),))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for environment in (None, {"PATH": "/usr/bin:/bin"}):
        assert proc.run([tool.name], timeout=60, env=environment).output == "loaded"
    assert proc.run_uninterrupted(["sh", "-c", f"exec {tool.name}"])[0].output == "loaded"


def test_empty_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a shell with PATH=: programs are found where systems have them."""
    monkeypatch.setenv("PATH", "")
    assert proc.require("sh", "dash")
    assert proc.ask("true").returncode == 0
