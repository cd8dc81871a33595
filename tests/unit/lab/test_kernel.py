# SPDX-License-Identifier: GPL-2.0-only
"""The lab's kernels: choice on a mirror, configuration, patches, cache."""

from __future__ import annotations

import errno
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from lab.kernel import Kernel, apt, artifacts, cache, ensure_artifacts, kconfig
from lab.kernel import source as source_tree
from lab.kernel.apt import Candidate
from lab.kernel.cache import Cache
from lab.kernel.source import Source
from lab.sources import content_hash
from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.progress import Progress

MADISON = """\
linux-source-6.12 | 6.12.107-1 | http://m.example trixie/main amd64 Packages
linux-source-6.12 | 6.12.95-1~bpo12+1 | http://m.example bookworm-backports/main amd64 Packages
linux-source-7.2 |   7.2.13-1 | http://m.example sid/main amd64 Packages
linux-source-7.3 | 7.3.4-1~bpo13+1 | http://m.example trixie-backports/main amd64 Packages
linux-source-7.4 | 7.4~rc2-1~exp1 | http://m.example rc-buggy/main amd64 Packages
"""


def test_mirrors_and_suites() -> None:
    releases = {"bookworm": "bookworm", "stable": "trixie", "unstable": "sid"}
    suites = apt.candidate_suites(releases | {"experimental": "rc-buggy"})
    assert {"trixie-backports", "sid", "experimental"} < set(suites)
    assert "sid-backports" not in suites
    assert apt.parse_codename("Suite: stable\nCodename: trixie\n") == "trixie"


def test_newest_release_is_chosen() -> None:
    found = apt.parse_madison(MADISON)
    wanted = Candidate("linux-source-7.3", "7.3.4-1~bpo13+1", "trixie-backports")
    assert apt.choose(found, (6, 19)) == wanted
    # Release candidates only if there is no release.
    candidate = apt.choose(found, (7, 4))
    assert candidate
    assert candidate.version == "7.4~rc2-1~exp1"
    assert apt.choose(found, (8, 0)) is None
    # dpkg's order, not the lexical one.
    versions = ["7.2.9-1", "7.2.13-1~bpo13+1", "7.2.13-1"]
    newest = apt.choose([Candidate("linux-source", v, "s") for v in versions], (6, 19))
    assert newest
    assert newest.version == "7.2.13-1"


@pytest.mark.parametrize("text", ["ID=fedora\nVERSION_CODENAME=x\n", "ID=debian\n", ""])
def test_not_a_debian_release(text: str) -> None:
    assert apt.os_codename('ID=debian\nVERSION_CODENAME="trixie"\n') == "trixie"
    with pytest.raises(UnsupportedError):
        apt.os_codename(text)


def test_apt_settings_without_hooks() -> None:
    proxy = 'Acquire::http::Proxy "http://proxy.example:3128";\n'
    hook = 'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";\n'
    assert apt.kept_settings(f'{proxy}Acquire "";\nAcquire::Languages "de";\n{hook}') == proxy


def test_configuration() -> None:
    text = '# title\nCONFIG_A=y   # why\nCONFIG_B="x # y"\n# CONFIG_C is not set   # why\n\n'
    values = {"A": "y", "B": '"x # y"', "C": "n"}
    assert kconfig.parse(text) == values
    assert kconfig.parse(kconfig.render(values)) == values
    with pytest.raises(ValueError, match="COFNIG_A"):
        kconfig.parse("COFNIG_A=y\n")
    kconfig.check({"A": "y", "GONE": "n"}, "CONFIG_A=y\nCONFIG_MORE=y\n")
    for got in ("CONFIG_A=m\n", ""):
        with pytest.raises(NodropError):
            kconfig.check({"A": "y"}, got)
    with pytest.raises(UsageError):
        kconfig.flavour_of("fast")


PATCH = "--- a/net/one.c\n+++ b/net/one.c\n@@ -1,2 +1,2 @@\n first\n-second\n+another\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(source_tree, "REPOSITORY", tmp_path)
    tree = tmp_path / "linux"
    (tree / "net").mkdir(parents=True)
    (tree / "net/one.c").write_text("first\nsecond\n")
    (tmp_path / "some").mkdir()
    (tmp_path / "some/0001-another.patch").write_text(PATCH)
    (tmp_path / "some/0000-cover-letter.patch").write_text("")
    return Source(tree, "linux-source 1 (here)", "0" * 64)


def test_a_patch_changes_a_copy(source: Source) -> None:
    progress = Progress(quiet=True)
    copy = source_tree.ensure_patched(source, ("some",), progress).tree
    assert (copy / "net/one.c").read_text() == "first\nanother\n"
    assert (source.tree / "net/one.c").read_text() == "first\nsecond\n"
    assert source_tree.ensure_patched(source, (), progress) == source
    path = source.tree.parent / "some/0001-another.patch"
    path.write_text(PATCH.replace("another", "third"))
    assert source_tree.ensure_patched(source, ("some",), progress).tree != copy
    path.write_text(PATCH.replace("first", "zeroth"))
    for folder in ("some", "nowhere"):
        with pytest.raises(NodropError):
            source_tree.ensure_patched(source, (folder,), progress)
    assert len(list(Cache("patched", keep=2).place.glob("linux-*"))) == 2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(temporary: Path, _final: Path) -> None:
    (temporary / "file").write_text("content")


@pytest.mark.usefixtures("place")
def test_entry_is_built_once_and_atomically() -> None:
    store = Cache("things", keep=2)
    seen: list[Path | None] = []

    def make(temporary: Path, final: Path) -> None:
        fill(temporary, final)
        seen.append(store.find("key"))
        store.get("inner", fill)  # sweeps, but leaves this one
        assert temporary.exists()

    first = store.get("key", make)
    assert store.get("key", make) == first
    assert seen == [None]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_failed_build_leaves_nothing(place: Path, error: BaseException) -> None:
    def make(temporary: Path, final: Path) -> None:
        fill(temporary, final)
        raise error

    with pytest.raises((KeyboardInterrupt, NodropError)):
        Cache("things", keep=2).get("key", make)
    assert not list(place.rglob("*.making"))
    assert Cache("things", keep=2).find("key") is None


def test_two_runs_build_one_entry(place: Path) -> None:
    store = Cache("things", keep=2)

    def make(temporary: Path, final: Path) -> None:
        with (place / "count").open("a") as handle:
            handle.write("x")
        time.sleep(0.3)
        fill(temporary, final)

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=store.get, args=("key", make)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert (place / "count").read_text(encoding="utf-8") == "x"


def test_moved_and_old_entries(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Cache("things", keep=2)
    for age, key in ((300, "old"), (100, "new")):
        entry = store.get(key, fill)
        os.utime(entry / cache.STAMP, (time.time() - age,) * 2)
    store.get("newest", fill)
    assert [store.find(key) is None for key in ("old", "new", "newest")] == [True, False, False]
    # Object trees contain absolute paths.
    moved = place.with_name("moved")
    place.rename(moved)
    monkeypatch.setenv("LAB_CACHE", str(moved))
    assert Cache("things", keep=2).find("new") is None


@pytest.mark.parametrize("which", ["..", ".", "things/key"])
@pytest.mark.parametrize("how", ["owner", "mode", "group"])
def test_root_refuses_others_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, which: str, how: str
) -> None:
    store = Cache("things", keep=2)
    store.get("key", fill)
    wanted, own = (place / which).resolve(), Path.stat

    def other(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = list(own(path, follow_symlinks=follow_symlinks))
        mine = path == wanted
        modes = {"mode": 0o777, "group": 0o775}
        found[stat.ST_MODE] = stat.S_IFDIR | modes.get(how if mine else "", 0o755)
        found[stat.ST_UID] = 1000 if mine and how == "owner" else 0
        found[stat.ST_GID] = 1000 if mine and how == "group" else 0
        return os.stat_result(found)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", other)
    with pytest.raises(NodropError):
        store.find("key")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert store.find("key") is not None


def test_hash_of_content_name_and_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "queue.c"
    file.write_text("one\n")
    seen = [content_hash(tmp_path)]
    (tmp_path / "queue.o").write_bytes(b"a product of the build")
    (tmp_path / ".queue.o.cmd").write_text("x")
    assert content_hash(tmp_path) == seen[0]
    file.write_text("two\n")
    seen.append(content_hash(tmp_path))
    file.rename(tmp_path / "other.c")
    seen.append(content_hash(tmp_path))
    (tmp_path / "other.c").chmod(0o755)
    seen.append(content_hash(tmp_path))
    assert len(set(seen)) == 4
    monkeypatch.setattr(artifacts, "REPOSITORY", tmp_path)
    kernel = Kernel(tmp_path, "7.3.4", tmp_path, tmp_path, "id", "package")
    with pytest.raises(NodropError):
        ensure_artifacts(kernel, Progress(quiet=True))
