# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NodropError
from nodrop.kernel import cache
from nodrop.kernel.cache import Cache


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NODROP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(temporary: Path, _final: Path) -> None:
    (temporary / "file").write_text("content", encoding="utf-8")


def leftovers(place: Path) -> list[str]:
    return [path.name for path in place.rglob("*.making")]


def test_made_once_and_found_again() -> None:
    store = Cache("things", keep=2)
    calls: list[Path] = []

    def make(temporary: Path, final: Path) -> None:
        calls.append(final)
        fill(temporary, final)

    first = store.get("key", make)
    assert store.get("key", make) == first
    assert calls == [first]
    assert (first / "file").read_text(encoding="utf-8") == "content"


def test_nobody_sees_half_an_entry() -> None:
    store = Cache("things", keep=2)
    seen: list[Path | None] = []

    def make(temporary: Path, final: Path) -> None:
        fill(temporary, final)
        seen.append(store.find("key"))
        assert not final.exists()

    store.get("key", make)
    assert seen == [None]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_left_when_making_fails(place: Path, error: type[BaseException]) -> None:
    def make(temporary: Path, final: Path) -> None:
        fill(temporary, final)
        raise error

    with pytest.raises(error):
        Cache("things", keep=2).get("key", make)
    assert leftovers(place) == []
    assert Cache("things", keep=2).find("key") is None


def _hang(temporary: Path, final: Path) -> None:
    fill(temporary, final)
    time.sleep(60)


def test_a_killed_runs_leftovers_go(place: Path) -> None:
    store = Cache("things", keep=2)
    child = multiprocessing.get_context("fork").Process(target=store.get, args=("dead", _hang))
    child.start()
    deadline = time.monotonic() + 10
    while not leftovers(place) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(10)
    assert leftovers(place) == [".dead.making"]
    store.get("other", fill)
    assert leftovers(place) == []


def test_two_runs_do_not_make_the_same_entry(tmp_path: Path) -> None:
    store = Cache("things", keep=2)
    count = tmp_path / "count"

    def make(temporary: Path, final: Path) -> None:
        with count.open("a", encoding="utf-8") as handle:
            handle.write("x")
        time.sleep(0.3)
        fill(temporary, final)

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=store.get, args=("key", make)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(20)
        assert child.exitcode == 0
    assert count.read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize("name", ["stat", "unlink"])
def test_two_runs_may_remove_the_same_entry(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def race(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path == stamp and entry.is_dir():
            entry.rename(entry.with_name("gone"))  # by the other run, just now
        return wanted(path, *args, **kwargs)

    store = Cache("things", keep=1)
    store.get("old", fill)
    entry = place / "things" / "old"
    stamp = entry / cache.STAMP
    wanted = getattr(Path, name)
    monkeypatch.setattr(Path, name, race)
    store.get("new", fill)
    assert not entry.exists()
    assert store.find("new") is not None


def test_entry_at_work_is_not_swept() -> None:
    store = Cache("things", keep=2)

    def make(temporary: Path, final: Path) -> None:
        fill(temporary, final)
        store.get("inner", fill)
        assert temporary.exists()

    store.get("outer", make)


def test_moved_cache_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache("things", keep=2).get("key", fill)
    moved = place.with_name("moved")
    place.rename(moved)
    monkeypatch.setenv("NODROP_CACHE", str(moved))
    store = Cache("things", keep=2)
    assert store.find("key") is None
    assert store.find("key") is None
    assert store.get("key", fill) == moved / "things" / "key"
    assert store.find("key") is not None


def test_least_recently_used_goes_first() -> None:
    store = Cache("things", keep=2)
    for age, key in ((300, "old"), (100, "new")):
        entry = store.get(key, fill)
        then = time.time() - age
        os.utime(entry / cache.STAMP, (then, then))
    store.get("newest", fill)
    assert store.find("old") is None
    assert store.find("new") is not None
    assert store.find("newest") is not None


def test_disk_full_is_a_sentence(place: Path) -> None:
    def make(_temporary: Path, _final: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(NodropError, match="is full") as caught:
        Cache("things", keep=2).get("key", make)
    assert "NODROP_CACHE" in caught.value.hint
    assert leftovers(place) == []


def test_read_only_cache_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODROP_CACHE", "/proc/nodrop-cannot-be-made")
    with pytest.raises(NodropError) as caught:
        Cache("things", keep=2).get("key", fill)
    assert caught.value.status == 1
    assert "NODROP_CACHE" in str(caught.value)


def test_permission_denied_is_a_sentence() -> None:
    def make(_temporary: Path, _final: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "/somewhere")

    with pytest.raises(NodropError, match="/somewhere: Read-only file system"):
        Cache("things", keep=2).get("key", make)


def test_digest_depends_on_every_part() -> None:
    assert cache.digest(1, "a") == cache.digest(1, "a")
    assert cache.digest(1, "a") != cache.digest(2, "a")
    assert cache.digest({"a": 1, "b": 2}) == cache.digest({"b": 2, "a": 1})


def test_root_prefers_own_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NODROP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "nodrop"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.root() == tmp_path / ".cache" / "nodrop"


@pytest.mark.parametrize("which", [".", "things", "things/key"])
@pytest.mark.parametrize("how", ["owner", "mode", "group"])
def test_root_takes_nothing_of_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, which: str, how: str
) -> None:
    store = Cache("things", keep=2)
    store.get("key", fill)
    own = Path.stat

    def other(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = list(own(path, follow_symlinks=follow_symlinks))
        mine = path == place / which
        found[stat.ST_MODE] = stat.S_IFDIR | {"mode": 0o777, "group": 0o775}.get(
            how if mine else "", 0o755
        )
        found[stat.ST_UID] = 1000 if mine and how == "owner" else 0
        found[stat.ST_GID] = 1000 if mine and how == "group" else 0
        return os.stat_result(found)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", other)
    with pytest.raises(NodropError, match="root would run") as caught:
        store.find("key")
    assert "NODROP_CACHE" in caught.value.hint
    with pytest.raises(NodropError, match="root would run"):
        store.get("key", fill)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert store.find("key") is not None
