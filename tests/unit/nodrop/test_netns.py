# SPDX-License-Identifier: GPL-2.0-only
"""Other network namespaces: names, entering them, and errors."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import netns
from nodrop.host.netns import Child
from nodrop.proc import ask


def devices() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def fail(error: Exception) -> None:
    raise error


def test_own_namespace_needs_neither_root_nor_child() -> None:
    for where in (None, os.getpid(), str(os.getpid()), "/proc/self/ns/net"):
        assert netns.run_inside(where, os.getpid) == os.getpid()


def test_errors_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child need not be in another namespace."""
    monkeypatch.setattr(netns, "_same", lambda _: False)
    monkeypatch.setattr(netns, "_enter", lambda *_: None)
    assert netns.run_inside(None, os.getpid) != netns.run_inside("/proc/self/ns/net", os.getpid)
    with pytest.raises(NodropError) as caught:
        netns.run_inside("/proc/self/ns/net", lambda: fail(UnsupportedError("What", "How")))
    assert (caught.value.message, caught.value.hint, caught.value.status) == ("What", "How", 4)
    missing = FileNotFoundError(errno.ENOENT, "gone", "/x")
    with pytest.raises(FileNotFoundError) as raised:
        netns.run_inside("/proc/self/ns/net", lambda: fail(missing))
    assert raised.value.filename == "/x"
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        netns.run_inside("/proc/self/ns/net", lambda: 1 / 0)
    with pytest.raises(NodropError):
        netns.run_inside("/proc/self/ns/net", signal.pause, 0.01)
    with pytest.raises(NodropError, match="sleep did not end"):
        netns.run_inside("/proc/self/ns/net", lambda: ask("sleep", "60"), 0.01)


def test_a_signal_ends_the_child_without_the_callers_handler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It arrives as soon as the child exists."""
    fork, parent = os.fork, os.getpid()

    def fork_and_signal() -> int:
        pid = fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    before = signal.signal(signal.SIGTERM, lambda *_: (tmp_path / str(os.getpid())).touch())
    try:
        monkeypatch.setattr(os, "fork", fork_and_signal)
        with Child(os.getpid) as child, pytest.raises(NodropError, match="ended early"):
            child.result("ended early")
        assert not list(tmp_path.iterdir())
        os.kill(parent, signal.SIGTERM)
        assert [path.name for path in tmp_path.iterdir()] == [str(parent)]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sys_is_mounted_if_its_namespace_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process 1 may be hidden (hidepid), and a user without privileges cannot mount."""
    stat, mounts = os.stat, list[str]()

    def without_first(path: str, **options: bool) -> os.stat_result:
        if path == "/proc/1/ns/net":
            raise PermissionError(errno.EACCES, "hidden", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", without_first)
    monkeypatch.setattr(netns, "_sys_shows", {})
    monkeypatch.setattr(netns, "_mount_sys", lambda _: fail(PermissionError(errno.EPERM, "")))
    assert not netns.own_sys()
    monkeypatch.setattr(netns, "_mount_sys", lambda _: mounts.append("/sys"))
    assert netns.own_sys()
    assert netns.own_sys()
    assert mounts == ["/sys"]


def test_names_pids_and_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(netns, "NAMED", tmp_path)
    (tmp_path / "42").touch()
    assert netns.named() == ["42"]
    assert netns.path_of("42") == tmp_path / "42"
    assert netns.path_of(42) == Path("/proc/42/ns/net")
    assert netns.path_of("43") == Path("/proc/43/ns/net")
    assert netns.path_of("/run/x") == Path("/run/x")
    assert netns.prefix("blue") == "ip netns exec blue "
    assert netns.prefix("43") == "nsenter --net=/proc/43/ns/net "
    assert netns.prefix(None) == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("where", ["nosuch", "", "a\0b", "x" * 300, 4999999, "/etc/passwd", "pipe"])
def test_no_namespace(where: str | int, tmp_path: Path) -> None:
    """Opening a FIFO must not block."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NodropError):
        netns.run_inside(tmp_path / "pipe" if where == "pipe" else where, devices)
