# SPDX-License-Identifier: GPL-2.0-only
"""Loading and unloading the livepatch in a kernel of files; after any failure it is unloaded."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from stubs import write

from nodrop.commands import livepatch as command
from nodrop.errors import NodropError, UnsupportedError
from nodrop.host.livepatch import Livepatch, build
from nodrop.proc import Completed

CORE, PATCH = "nodrop", "nodrop_live"
IN = [f"insmod {CORE}", f"insmod {PATCH}"]
OUT = [f"rmmod {PATCH}", f"rmmod {CORE}"]


class FakeKernel:
    """A kernel with livepatch and a stock tun, which loads and unloads modules.

    Attributes:
        asked: what it was asked for.
        refused: the module that it refuses.
        during: called while a module is loaded, with its name.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.refused = ""
        self.during: Callable[[str], None] = lambda _: None
        self.files = root / "sys/kernel/livepatch" / PATCH
        for folder in ("sys/kernel/livepatch", "sys/module/tun/holders", "proc"):
            (root / folder).mkdir(parents=True)

    def run(self, argv: list[str | Path], **_: object) -> Completed:
        tool, name = str(argv[0]), Path(argv[1]).stem
        self.asked.append(f"{tool} {name}")
        if tool == "rmmod":
            (self.root / f"sys/module/{name}/holders").rmdir()
            (self.root / f"sys/module/{name}").rmdir()
        elif name != self.refused:
            self.load(name)
            self.during(name)
        return Completed(int(name == self.refused), "no", 0.0)

    def load(self, *names: str) -> None:
        for name in names:
            (self.root / f"sys/module/{name}/holders").mkdir(parents=True)

    def patched(self, *, enabled: int = 1, transition: int = 1) -> None:
        write(self.files / "enabled", f"{enabled}\n")
        write(self.files / "transition", f"{transition}\n")

    def restored(self, _text: str = "") -> None:
        """End the transition of all tasks; the kernel removes the patch."""
        for name in ("enabled", "transition"):
            (self.files / name).unlink()
        self.files.rmdir()

    def task(self, pid: int, name: bytes, state: int) -> None:
        folder = self.root / f"proc/{pid}/task/{pid}"
        write(folder / "comm", name + b"\n")
        write(folder / "patch_state", f"{state}\n")

    @property
    def going_out(self) -> bool:
        return (self.files / "enabled").read_text() == "0"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    made = FakeKernel(tmp_path)
    monkeypatch.setattr("nodrop.proc.run", made.run)
    return made


def enter(kernel: FakeKernel, timeout: float = 60.0, tell: Callable[[str], None] = print) -> None:
    Livepatch(kernel.root).enter(kernel.root, timeout, tell)


def test_patchable_kernels(tmp_path: Path, kernel: FakeKernel) -> None:
    Livepatch(kernel.root).require()
    with pytest.raises(UnsupportedError):
        Livepatch(tmp_path / "nowhere").require()
    write(tmp_path / "built-in/sys/class/misc/tun/dev", "10:200\n")
    (tmp_path / "built-in/sys/kernel/livepatch").mkdir(parents=True)
    with pytest.raises(UnsupportedError):
        Livepatch(tmp_path / "built-in").require()
    write(kernel.root / "sys/module/tun/parameters/nodrop", "Y\n")
    with pytest.raises(NodropError) as caught:
        Livepatch(kernel.root).require()
    assert caught.type is NodropError


def test_holders(kernel: FakeKernel) -> None:
    kernel.patched()
    for pid, name, state in (
        (10, b"openvpn", 0),
        (11, b"moved", 1),
        (12, b"idle", -1),
        (13, b"\xffvpn\x1b[2J", 0),
    ):
        kernel.task(pid, name, state)
    patch = Livepatch(kernel.root)
    assert not patch.settled
    first, second = patch.holders()
    assert first == "openvpn (10)"
    assert second.isprintable()
    assert second.endswith("(13)")


def test_load(kernel: FakeKernel) -> None:
    kernel.during = lambda name: kernel.patched(transition=0) if name == PATCH else None
    enter(kernel)
    assert kernel.asked == IN
    assert Livepatch(kernel.root).settled
    assert not kernel.going_out


def test_late_transition_is_reverted(kernel: FakeKernel) -> None:
    kernel.task(10, b"openvpn", 0)
    kernel.during = lambda name: kernel.patched() if name == PATCH else None

    def tell(_: str) -> None:
        if kernel.going_out:
            kernel.restored()

    with pytest.raises(NodropError) as caught:
        enter(kernel, 0.3, tell)
    assert "openvpn (10)" in caught.value.hint
    assert kernel.asked == [*IN, *OUT]
    assert not Livepatch(kernel.root).left


def test_stuck_unload(kernel: FakeKernel) -> None:
    kernel.patched(enabled=0)
    kernel.load(CORE, PATCH)
    with pytest.raises(NodropError):
        Livepatch(kernel.root).leave(0.2, print)
    assert kernel.asked == []


def test_another_patch_is_in_transition(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.patched(transition=0)
    busy = OSError(errno.EBUSY, "Device or resource busy")
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=busy))
    with pytest.raises(NodropError):
        Livepatch(kernel.root).leave(0.2, print)


def test_build_from_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Mock(return_value=Completed(0, "", 0.0))
    monkeypatch.setattr("nodrop.proc.run", run)
    build("6.1.0", Path("linux"), tmp_path, print)
    asked = [word for ran in run.call_args_list for word in ran.args[0]]
    assert f"KSRC={Path.cwd() / 'linux'}" in asked
    assert "CONFIG_KUNIT=" in asked, "KUnit's tests are not in the sources"


@pytest.mark.parametrize("refused", [CORE, PATCH])
def test_refused_module_leaves_nothing_loaded(kernel: FakeKernel, refused: str) -> None:
    kernel.refused = refused
    with pytest.raises(NodropError):
        enter(kernel)
    assert kernel.asked == ([*IN, OUT[1]] if refused == PATCH else IN[:1])
    assert not Livepatch(kernel.root).left


def test_earlier_patch_is_unloaded_first(kernel: FakeKernel) -> None:
    kernel.patched(enabled=0)
    kernel.load(CORE, PATCH)
    enter(kernel, tell=kernel.restored)
    assert kernel.asked == [*OUT, *IN]


def test_interrupted_load_is_reverted(kernel: FakeKernel) -> None:
    kernel.patched()
    kernel.load(CORE, PATCH)
    with pytest.raises(KeyboardInterrupt):
        enter(kernel, tell=Mock(side_effect=KeyboardInterrupt))
    assert kernel.going_out


@pytest.mark.parametrize("which", [CORE, PATCH])
def test_interrupted_while_a_module_is_loaded(kernel: FakeKernel, which: str) -> None:
    """By Ctrl-C; insmod still ends, and the patch is disabled."""

    def during(name: str) -> None:
        if name == which:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            if which == PATCH:
                kernel.patched()

    kernel.during = during
    with pytest.raises(KeyboardInterrupt):
        enter(kernel)
    patch = Livepatch(kernel.root)
    if which == CORE:
        assert kernel.asked == [IN[0], OUT[1]]
        assert not patch.left
    else:
        assert kernel.asked == IN
        assert kernel.going_out
        assert patch.left


@pytest.mark.parametrize("patched", [True, False])
def test_hanging_insmod_is_undone(kernel: FakeKernel, patched: bool) -> None:
    def during(name: str) -> None:
        if name == PATCH:
            if patched:
                kernel.patched()
            else:
                (kernel.root / f"sys/module/{PATCH}/holders").rmdir()
                (kernel.root / f"sys/module/{PATCH}").rmdir()
            raise NodropError("insmod did not end within 60 s and was stopped.")

    kernel.during = during
    with pytest.raises(NodropError):
        enter(kernel)
    assert Livepatch(kernel.root).left == patched
    if patched:
        assert kernel.going_out
    else:
        assert kernel.asked == [*IN, OUT[1]]


def test_unload_removes_a_leftover_core(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a command that was killed between its two modules."""
    kernel.load(CORE)
    monkeypatch.setattr(command, "Livepatch", lambda: Livepatch(kernel.root))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    words = ["livepatch", "unload"]
    arguments = parser.parse_args(words, argparse.Namespace(json=False, quiet=True, color="never"))
    assert arguments.run(arguments) == 0
    assert kernel.asked == [OUT[1]]
