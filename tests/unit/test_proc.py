# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.kernel.build import toolchain


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    return state not in ("Z", "X")


def wait_dead(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def test_status_output_and_lines() -> None:
    lines: list[str] = []
    done = proc.run(
        ["sh", "-c", "echo a; echo b >&2; printf c; exit 3"], timeout=10, on_line=lines.append
    )
    assert done.status == 3
    assert lines == ["a", "b", "c"]
    assert done.output == "a\nb\nc"


def test_log_file_gets_the_output(tmp_path: Path) -> None:
    proc.run(["echo", "words"], timeout=10, log=tmp_path / "log")
    assert (tmp_path / "log").read_text(encoding="utf-8") == "words\n"


def test_time_limit_kills_children_too(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! >{tmp_path}/pid; echo begun; wait"
    started = time.monotonic()
    with pytest.raises(NodropError, match="did not end within 1 s") as caught:
        proc.run(["sh", "-c", script], timeout=1)
    assert time.monotonic() - started < 5
    assert "begun" in caught.value.hint
    assert wait_dead(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_error_in_the_caller_kills_children_too(tmp_path: Path) -> None:
    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    script = f"sleep 60 & echo $! >{tmp_path}/pid; echo begun; wait"
    with pytest.raises(KeyboardInterrupt):
        proc.run(["sh", "-c", script], timeout=10, on_line=interrupt)
    assert wait_dead(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_missing_program_names_its_package() -> None:
    with pytest.raises(NodropError, match="no-such-program") as caught:
        proc.require("no-such-program", "some-package")
    assert caught.value.hint == "Install it with: apt-get install some-package"


def test_no_compiler_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    with pytest.raises(NodropError, match="gcc is missing"):
        toolchain()
