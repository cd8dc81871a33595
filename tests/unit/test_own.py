# SPDX-License-Identifier: GPL-2.0-only
"""Kernels of the lab's own: which runs how, and what their guests are told."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop import proc
from nodrop.kernel import Artifacts, Kernel, build, kconfig
from nodrop.lab import accel, own, plan, qemu, uml
from nodrop.lab.hearing import GuestRun

DONE = GuestRun(status=0, log="", output="", splats=(), seconds=1.0)
SLOW = 10.0


def kernel(arch: str) -> Kernel:
    image, place = Path("/cache/image"), Path("/")
    return Kernel(image, "7.3.4", place, place, "id", "package", arch, ("tool.option=1",))


def test_user_mode_runs_as_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = []

    def run(_kernel: Kernel, argv: Sequence[str], **how: Any) -> GuestRun:
        calls.append({"argv": argv, **how})
        return DONE

    monkeypatch.setattr(uml, "run", run)
    assert own.run(kernel("um"), ["true"], out=tmp_path, urgent=True) == DONE
    assert [(call["argv"], call["urgent"]) for call in calls] == [(["true"], True)]


def test_others_run_in_qemu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[list[str]] = []
    plans: list[str] = []
    heard: list[dict[str, Any]] = []

    @contextmanager
    def start(command: Sequence[str], _ends: Sequence[socket.socket]) -> Iterator[None]:
        started.append(list(command))
        words = command[command.index("-append") + 1].split()
        plans.append(Path(words[-1]).read_text(encoding="utf-8"))
        yield None

    def hear(*_: object, **how: Any) -> GuestRun:
        heard.append(how)
        return DONE

    monkeypatch.setattr(accel, "choose", lambda _: accel.Accel("tcg", ("-accel", "tcg"), SLOW))
    monkeypatch.setattr(qemu, "start", start)
    monkeypatch.setattr(proc, "require", lambda *_: "qemu")
    monkeypatch.setattr(own, "hear", hear)
    artifacts = Artifacts(Path("/modules"), Path("/bin"))
    own.run(kernel("x86_64"), ["echo", "a b"], out=tmp_path, artifacts=artifacts, timeout=7.0)
    (command,) = started
    assert command[command.index("-kernel") + 1] == "/cache/image"
    words = command[command.index("-append") + 1].split()
    assert words.index("tool.option=1") < words.index("--") == words.index(f"init={plan.INIT}") + 1
    folders = [word for word in command if word.startswith("local,path=")]
    assert [("readonly=on" in word.split(",")) for word in folders] == [True, False]
    assert folders[0].startswith("local,path=/,")
    assert folders[1].startswith(f"local,path={tmp_path},")
    assert heard[0]["timeout"] == 7.0 * SLOW * own.SLOWER
    lines = plans[0].splitlines()
    assert lines[-1] == "set -- echo 'a b'"
    assert {"LAB_RESULTS=9p", "LAB_OUTPUT=/dev/ttyS1", "LAB_STATUS=/dev/ttyS2"} < set(lines)
    assert f"export NODROP_SLOW={SLOW * own.SLOWER:g}" in lines
    assert "export NODROP_MODULES=/modules" in lines


def test_the_plans_words_are_the_commands(tmp_path: Path) -> None:
    words = ["", "two words", "$HOME", "*", "line\nbreak", "'"]
    machine = plan.Machine("tty1", "tty2", "hostfs")
    text = plan.render(machine, words, tmp_path, {"A": "it's"}, None)
    assert shlex.split(text.partition("set -- ")[2]) == words
    assert "export A='it'\"'\"'s'" in text


@pytest.mark.parametrize("flavour", list(kconfig.FLAVOURS))
def test_each_flavour_has_a_target(flavour: str) -> None:
    found = build.target(flavour)
    assert found.arch == ("x86_64" if flavour == "kcsan" else own.UML)
