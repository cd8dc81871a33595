# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch's state, read from a kernel's files."""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from nodrop import proc
from nodrop.commands import install
from nodrop.errors import NodropError, UnsupportedError
from nodrop.livepatch import Livepatch
from nodrop.proc import Completed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A kernel with livepatch and a stock tun."""
    for folder in ("sys/kernel/livepatch", "sys/module/tun/holders", "proc"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def patched(root: Path, *, enabled: int = 1, transition: int = 0) -> Path:
    """The patch is in the kernel."""
    patch = root / "sys/kernel/livepatch/nodrop_live"
    patch.mkdir()
    (patch / "enabled").write_text(f"{enabled}\n")
    (patch / "transition").write_text(f"{transition}\n")
    return patch


def task(root: Path, pid: int, name: str | bytes, state: str) -> None:
    """A task with a state of its patching."""
    folder = root / f"proc/{pid}/task/{pid}"
    folder.mkdir(parents=True)
    (folder / "comm").write_bytes((name if isinstance(name, bytes) else name.encode()) + b"\n")
    (folder / "patch_state").write_text(f"{state}\n")


def test_no_livepatch_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no livepatch"):
        Livepatch(tmp_path).require()


def test_own_driver_is_refused(root: Path) -> None:
    (root / "sys/module/tun/parameters").mkdir()
    (root / "sys/module/tun/parameters/nodrop").write_text("Y\n")
    with pytest.raises(NodropError, match="nodrop's own"):
        Livepatch(root).require()


def test_stock_driver_is_fine(root: Path) -> None:
    Livepatch(root).require()


def test_holders_are_those_of_the_other_side(root: Path) -> None:
    patched(root, transition=1)
    task(root, 10, "openvpn", "0")
    task(root, 11, "moved", "1")
    task(root, 12, "idle", "-1")
    patch = Livepatch(root)
    assert not patch.settled
    assert patch.holders() == ["openvpn (10)"]


def test_name_of_a_task_may_be_any_bytes(root: Path) -> None:
    patched(root, transition=1)
    task(root, 10, b"\xffvpn", "0")
    assert Livepatch(root).holders() == ["\ufffdvpn (10)"]


def test_names_of_holders_are_no_commands_for_the_terminal(root: Path) -> None:
    patched(root, transition=1)
    task(root, 10, "x\x1b[2J\ry", "0")
    (name,) = Livepatch(root).holders()
    assert name.isprintable()


def test_late_transition_is_taken_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = patched(root, transition=1)
    task(root, 10, "openvpn", "0")
    for name in ("nodrop", "nodrop_live"):
        (root / f"sys/module/{name}/holders").mkdir(parents=True)
    removed = []

    def kernel() -> None:
        while (files / "enabled").read_text().strip() != "0":
            time.sleep(0.01)
        for name in ("enabled", "transition"):
            (files / name).unlink()
        files.rmdir()

    def rmmod(argv: list[str], **_: object) -> Completed:
        removed.append(argv)
        return Completed(0, "", 0.0)

    monkeypatch.setattr("nodrop.proc.run", rmmod)
    thread = threading.Thread(target=kernel)
    thread.start()
    with pytest.raises(NodropError, match=r"taken out again[^$]*openvpn \(10\)"):
        Livepatch(root).enter(root, 0.3, lambda _: None)
    thread.join()
    assert removed == [["rmmod", "nodrop_live"], ["rmmod", "nodrop"]]


def test_stuck_on_the_way_out_names_the_task(root: Path) -> None:
    patched(root, enabled=0, transition=1)
    task(root, 7, "reader", "1")
    with pytest.raises(NodropError, match=r"not out after[^$]*reader \(7\)"):
        Livepatch(root).leave(0.2, lambda _: None)


def modules_of(root: Path, monkeypatch: pytest.MonkeyPatch, *, refused: str = "") -> list[str]:
    """A kernel that loads and unloads modules, but for one; returns what was asked of it."""
    asked: list[str] = []

    def run(argv: list[str | Path], **_: object) -> Completed:
        tool, name = str(argv[0]), Path(argv[1]).stem
        asked.append(f"{tool} {name}")
        holders = root / f"sys/module/{name}/holders"
        if tool == "rmmod":
            holders.rmdir()
            holders.parent.rmdir()
        elif name != refused:
            holders.mkdir(parents=True)
        return Completed(int(name == refused), "no", 0.0)

    monkeypatch.setattr("nodrop.proc.run", run)
    return asked


def test_refused_leaves_nothing_loaded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = modules_of(root, monkeypatch, refused="nodrop_live")
    with pytest.raises(NodropError, match="nodrop_live could not be loaded"):
        Livepatch(root).enter(root, 0.2, lambda _: None)
    assert asked == ["insmod nodrop", "insmod nodrop_live", "rmmod nodrop"]


def test_one_on_its_way_out_goes_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = patched(root, enabled=0, transition=1)
    for name in ("nodrop", "nodrop_live"):
        (root / f"sys/module/{name}/holders").mkdir(parents=True)
    asked = modules_of(root, monkeypatch)

    def tell(_: str) -> None:
        for name in ("enabled", "transition"):
            (files / name).unlink()
        files.rmdir()

    Livepatch(root).enter(root, 5.0, tell)
    assert asked == ["rmmod nodrop_live", "rmmod nodrop", "insmod nodrop", "insmod nodrop_live"]


def test_interrupted_goes_out(root: Path) -> None:
    files = patched(root, transition=1)
    for name in ("nodrop", "nodrop_live"):
        (root / f"sys/module/{name}/holders").mkdir(parents=True)

    def tell(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Livepatch(root).enter(root, 5.0, tell)
    assert (files / "enabled").read_text() == "0"


def interrupted_while_loading(root: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> list[str]:
    """Ctrl-C while insmod runs; it ends all the same. Returns what was asked of the kernel."""
    asked = modules_of(root, monkeypatch)
    run = proc.run

    def insmod(argv: list[str | Path], timeout: float) -> Completed:
        if argv[0] == "insmod" and Path(argv[1]).stem == which:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            if which == "nodrop_live":
                patched(root, transition=1)
        return run(argv, timeout=timeout)

    monkeypatch.setattr("nodrop.proc.run", insmod)
    with pytest.raises(KeyboardInterrupt):
        Livepatch(root).enter(root, 5.0, lambda _: None)
    return asked


def test_interrupted_before_the_patch_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = interrupted_while_loading(root, monkeypatch, "nodrop")
    assert asked == ["insmod nodrop", "rmmod nodrop"]
    assert not Livepatch(root).left


def test_interrupted_while_the_patch_is_loaded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = interrupted_while_loading(root, monkeypatch, "nodrop_live")
    assert asked == ["insmod nodrop", "insmod nodrop_live"]
    # It goes out by itself, and the next command knows of it.
    assert (root / "sys/kernel/livepatch/nodrop_live/enabled").read_text() == "0"
    assert Livepatch(root).left


@pytest.mark.parametrize("loaded", [True, False])
def test_insmod_that_does_not_end_is_undone(
    root: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    asked = modules_of(root, monkeypatch)
    run = proc.run

    def insmod(argv: list[str | Path], timeout: float) -> Completed:
        late = argv[0] == "insmod" and Path(argv[1]).stem == "nodrop_live"
        if late and loaded:
            patched(root, transition=1)
        if not late or loaded:
            run(argv, timeout=timeout)
        if late:
            raise NodropError("insmod did not end within 60 s and was stopped.")
        return Completed(0, "", 0.0)

    monkeypatch.setattr("nodrop.proc.run", insmod)
    with pytest.raises(NodropError, match=r"did not end[^$]*nodrop uninstall --live"):
        Livepatch(root).enter(root, 5.0, lambda _: None)
    assert Livepatch(root).left == loaded
    if loaded:
        assert (root / "sys/kernel/livepatch/nodrop_live/enabled").read_text() == "0"
    else:
        assert asked == ["insmod nodrop", "rmmod nodrop"]


def test_module_that_is_still_being_loaded_is_named(root: Path) -> None:
    (root / "sys/module/nodrop_live/holders").mkdir(parents=True)
    (root / "sys/module/nodrop_live/initstate").write_text("coming\n")
    with pytest.raises(NodropError, match="still loading nodrop_live"):
        Livepatch(root).leave(1.0, lambda _: None)


def test_uninstall_takes_out_a_core_that_was_left(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a command leaves it that was killed between its two modules."""
    (root / "sys/module/nodrop/holders").mkdir(parents=True)
    asked = modules_of(root, monkeypatch)
    monkeypatch.setattr(install, "Livepatch", lambda: Livepatch(root))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    parser = argparse.ArgumentParser()
    install.register(parser.add_subparsers())
    words = ["uninstall", "--live"]
    arguments = parser.parse_args(words, argparse.Namespace(json=False, quiet=True, color="never"))
    assert arguments.run(arguments) == 0
    assert asked == ["rmmod nodrop"]
    assert "stock again" in capsys.readouterr().out
