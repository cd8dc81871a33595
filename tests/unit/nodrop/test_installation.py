# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``uninstall``: sources, commands and failures."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from schema import answer
from stubs import before, programs, write

from nodrop.cli import main
from nodrop.commands import install as command
from nodrop.errors import UnsupportedError
from nodrop.host.installation import Installation

REPOSITORY = Path(__file__).resolve().parents[3]
KERNEL = "6.1.0-99-amd64"
ADD = "dkms add -m nodrop -v 0.3.0"
INSTALL = f"dkms install -m nodrop -v 0.3.0 -k {KERNEL}"
REMOVE = INSTALL.replace("install", "remove")
VERIFY, SETTLE = f"verify 0.3.0 {KERNEL}", "settle in"
STUBS = {
    "dpkg-query": 'cat "$HOST/dpkg" 2>/dev/null || exit 1',
    "dkms": 'echo "dkms $*" >>"$HOST/ran"; case $1 in '
    'status) cat "$HOST/dkms" 2>/dev/null || true ;; '
    'install) exit "$(cat "$HOST/end" 2>/dev/null || echo 0)" ;; '
    "esac",
}


class Host:
    """A root directory with stubs for programs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        programs(root / "bin", STUBS)

    def tree(self) -> Path:
        """DKMS has the sources."""
        tree = self.root / "usr/src/nodrop-0.3.0"
        write(tree / "dkms.conf")
        for name in ("fit", "verify", "settle"):
            programs(tree, {name: f'echo "{name} $*" >>"$HOST/ran"; echo "nodrop: {name}" >&2'})
        return tree

    @property
    def ran(self) -> list[str]:
        path = self.root / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("dkms status")]

    def everything(self) -> list[tuple[str, int]]:
        """Return all files and their change times, except for the stubs' log."""
        found = [path for path in sorted(self.root.rglob("*")) if path.name != "ran"]
        return [(str(path), path.stat().st_mtime_ns) for path in found if path.is_file()]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    monkeypatch.setenv("HOST", str(tmp_path))

    def place(release: str | None = None) -> Installation:
        return Installation(tmp_path, tmp_path / "repository", release or KERNEL)

    monkeypatch.setattr(command, "Installation", place)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


def json_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return a command's JSON without the directories of its programs."""
    data = answer(capsys, *words)
    data["actions"] = [line.rpartition("/nodrop-0.3.0/")[2] for line in data["actions"]]
    return data


def test_by_dkms(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    wanted = [ADD, INSTALL, VERIFY, SETTLE]
    there = host.everything()
    data = json_of(capsys, "install", "--dry-run")
    assert (data["actions"], data["dry_run"], data["changed"]) == (wanted, True, False)
    assert host.ran == []
    assert host.everything() == there
    assert json_of(capsys, "install")["changed"] is True
    assert host.ran == wanted


def test_installed_modules_stay(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    write(host.root / "dkms", f"nodrop/0.3.0, {KERNEL}, x86_64: installed\n")
    assert json_of(capsys, "install", "--dry-run")["actions"] == [VERIFY, SETTLE]
    data = json_of(capsys, "install", "--dry-run", "--source", "/usr/src")
    fit = f"fit --source /usr/src {KERNEL}"
    assert data["actions"][:3] == [fit, REMOVE, INSTALL], "DKMS would keep the installed ones"
    write(host.root / "dkms", "nodrop/0.3.0: added\n")
    data = json_of(capsys, "install", "--dry-run", "--source", "/usr/src")
    assert data["actions"][:2] == [fit, INSTALL]


@pytest.mark.parametrize(("end", "status"), [("77", 4), ("3", 1)])
def test_unsupported_kernel(host: Host, end: str, status: int) -> None:
    host.tree()
    write(host.root / "end", end)
    assert main(["-q", "install"]) == status
    assert host.ran[-1] == VERIFY, "modules that were copied in part are removed"
    assert SETTLE not in host.ran


def test_unsupported_source(host: Host) -> None:
    programs(host.tree(), {"fit": "exit 1"})
    assert main(["-q", "install", "--source", "/usr/src"]) == 4
    assert host.ran == [ADD]


@pytest.mark.parametrize(
    "left",
    ["usr/local/bin/nodrop", "usr/src/nodrop-0.2.0/a", "lib/modules/5/updates/dkms/nodrop.ko"],
)
def test_uninstall_removes_leftovers(
    host: Host, capsys: pytest.CaptureFixture[str], left: str
) -> None:
    write(host.root / left)
    programs(host.root / "repository/packaging", {"install": 'echo "would $*"'})
    assert json_of(capsys, "uninstall", "--dry-run")["actions"] == ["would -n -u"]


def test_by_scripts_install(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    scripts = host.root / "repository/packaging"
    write(scripts / "lay")
    noted = 'if [ "$1" = -n ]; then echo "would $*"; exit; fi; echo "script $*" >>"$HOST/ran"'
    programs(scripts, {"install": noted})
    assert json_of(capsys, "install", "--dry-run")["actions"] == [f"would -n -k {KERNEL}"]
    assert json_of(capsys, "uninstall", "--dry-run")["actions"] == ["would -n -u"]
    assert host.ran == []
    assert main(["-q", "install", "--kernel", "all", "--source", "/usr/src"]) == 0
    assert main(["-q", "uninstall"]) == 0
    assert host.ran == ["script -k all -s /usr/src", "script -u"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("install", 4),  # from nowhere
        ("uninstall", 0),
        ("install --timeout 5", 2),
        ("livepatch load --kernel all", 2),
        ("livepatch load --source /x --built /y", 2),
        ("livepatch", 2),
    ],
)
def test_without_sources(host: Host, words: str, status: int) -> None:
    assert main(["-q", *words.split()]) == status
    assert host.ran == []


def test_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.tree()
    assert main(["-q", "install", "--source", "/nope"]) == 1
    write(host.root / "dpkg", "ii ")
    assert main(["-q", "uninstall"]) == 4, "the package's"
    write(host.root / "dpkg", "rc ")
    assert main(["-q", "uninstall"]) == 1, "without a script"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["-q", "install"]) == 1
    assert host.ran == []
    assert main(["-q", "install", "--dry-run"]) == 0


def test_json_has_the_loaded_driver(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert json_of(capsys, "uninstall")["loaded"] is None
    write(host.root / "sys/module/tun/initstate")
    assert json_of(capsys, "uninstall")["loaded"] == "stock"
    write(host.root / "sys/kernel/livepatch/nodrop_live/enabled")
    assert json_of(capsys, "uninstall")["loaded"] == "live"
    write(host.root / "sys/module/tun/parameters/nodrop", "Y")
    host.tree()
    write(host.root / f"lib/modules/{KERNEL}/updates/dkms/nodrop.ko.xz")
    data = json_of(capsys, "install", "--dry-run")
    assert (data["loaded"], data["installed"]) == ("nodrop", True)


def test_dry_run_of_the_script_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real packaging/install, in a copy, with a DKMS that logs its arguments."""
    copy = tmp_path / "clone"
    for name in ("packaging", "kmod"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("build"))
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    monkeypatch.setenv("HOST", str(tmp_path))
    there = made.everything()
    place = Installation(tmp_path, copy, KERNEL)
    data = place.as_text(place.to_install())
    version = (copy / "kmod/VERSION").read_text().strip()
    fit, built = f"kmod/fit {KERNEL}", f"dkms install -m nodrop -v {version} -k {KERNEL}"
    assert data.index(fit) < data.index(built), "built and checked before anything is installed"
    made.tree()
    assert place.as_text(place.to_uninstall())[-2:] == ["kmod/place stock", "kmod/settle out"]
    assert made.ran == []
    assert [entry for entry in made.everything() if "usr/src" not in entry[0]] == there
    programs(copy / "kmod", {"fit": "exit 1"})
    programs(tmp_path / "bin", {"id": "echo 0"})
    with pytest.raises(UnsupportedError):
        place.run(place.to_install(), print)


@pytest.mark.parametrize(("program", "ran"), [("dkms", ["add"]), ("settle", [ADD, INSTALL, "in"])])
def test_interrupt_is_deferred(host: Host, program: str, ran: list[str]) -> None:
    """It arrives with the program's first line; the program ends, and no further one is run."""
    tree = host.tree()
    slow = 'case $1 in status) ;; *) echo slow; sleep 0.3; echo "$1" >>"$HOST/ran" ;; esac'
    programs(host.root / "bin" if program == "dkms" else tree, {program: slow})
    programs(tree, {"verify": "exit 0"})
    place = Installation(host.root, host.root / "repository", KERNEL)

    def interrupt(line: str) -> None:
        if line == "slow":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.run(place.to_install(), interrupt)
    assert host.ran == ran


def test_interrupted_installation_is_completed(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    """By Ctrl-C while DKMS installs; what to restart is reported."""
    host.tree()
    text = f"[ $1 != install ] || kill -INT $PPID; {STUBS['dkms']}"
    programs(host.root / "bin", {"dkms": text})
    assert main(["-q", "install"]) == 130
    assert host.ran == [ADD, INSTALL, VERIFY, SETTLE]
    assert "settle" in capsys.readouterr().out


def test_script_output_is_printable(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    programs(host.tree(), {"settle": r"printf 'nodrop: qemu\033[2J\rx\n' >&2"})
    assert main(["-q", "install"]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()
