# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``uninstall`` with the real installer and a noting DKMS; the packages."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hosts import SYSTEMS, system_tree
from stubs import before, programs, write

from lab.sources import REPOSITORY
from nodrop.cli import main
from nodrop.commands import install as command
from nodrop.host import settings

Capture = pytest.CaptureFixture[str]
KERNEL = "6.1.0-99-amd64"
FIT = f"fit {KERNEL}"
ADD = "dkms add -m nodrop -v 0.3.0"
INSTALL = f"dkms install -m nodrop -v 0.3.0 -k {KERNEL}"
REMOVE = INSTALL.replace("install", "remove")
VERIFY, STOCK, SETTLE = f"hooks verify 0.3.0 {KERNEL}", "hooks stock", "settle"
STUBS = {
    "dpkg-query": 'cat "$HOST/dpkg" 2>/dev/null || exit 1',
    "dkms": 'echo "dkms $*" >>"$HOST/ran"; case $1 in '
    'status) cat "$HOST/dkms" 2>/dev/null || true ;; '
    'install) exit "$(cat "$HOST/end" 2>/dev/null || echo 0)" ;; '
    "esac",
    "id": "echo 0",
    "uname": f"echo {KERNEL}",
    "rst2man": "exit 0",
}
PACKAGED = "usr/lib/modprobe.d/zz-nodrop.conf"
NOTED = 'name=${0##*/}; echo "$name" "$@" >>"$HOST/ran"; echo "nodrop: $name" >&2'


class StubbedRoot:
    """A root directory with stubs for programs."""

    def __init__(self, root: Path) -> None:
        self.root, self.printed = root, ""
        programs(root / "bin", STUBS)
        (root / "usr/src").mkdir(parents=True)
        (root / "lib/modules").mkdir(parents=True)

    def scripts(self, folder: Path) -> Path:
        """Write the installer to a directory, with stubs for the scripts that it calls."""
        (folder / "dkms").mkdir(parents=True)
        for name in ("install", "lib.sh", "modprobe.conf"):
            shutil.copy(REPOSITORY / "dkms" / name, folder / "dkms")
        programs(folder / "dkms", dict.fromkeys(("fit", "hooks", "settle"), NOTED))
        write(folder / "kmod/VERSION", "0.3.0\n")
        (folder / "nodrop").mkdir()
        return folder

    def tree(self) -> Path:
        """DKMS has the sources."""
        return self.scripts(self.root / "usr/src/nodrop-0.3.0")

    def clone(self) -> Path:
        """The command runs from a clone."""
        clone = self.scripts(self.root / "repository")
        programs(clone / "packaging", {"manpages": NOTED})
        shutil.copytree(REPOSITORY / "packaging/systemd", clone / "packaging/systemd")
        copy = f'[ "$1" != modules ] || {{ mkdir -p "$2"; cp -r {clone}/dkms {clone}/kmod "$2/"; }}'
        programs(clone / "packaging", {"lay": f"{NOTED}; {copy}"})
        return clone

    def run(self, line: str) -> int:
        """Run the command, and return its exit status; ``printed`` is the installer's output."""
        try:
            return main(["-q", *line.split()])
        except SystemExit as end:
            return int(end.code or 0)

    def become(self, program: Path, words: list[str]) -> NoReturn:
        """Replace os.execv(), after which the process's signals matter no more."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        done = subprocess.run(
            words, executable=program, capture_output=True, text=True, check=False, timeout=60
        )
        self.printed = done.stdout + done.stderr
        raise SystemExit(done.returncode)

    def actions(self, line: str) -> list[str]:
        """Return the lines that a dry run prints, without the directories of its programs."""
        assert self.run(f"{line} --dry-run") == 0
        lines = [line for line in self.printed.splitlines() if not line.startswith("nodrop: ")]
        return [line.rpartition("/dkms/")[2] for line in lines]

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
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubbedRoot:
    made = StubbedRoot(tmp_path)
    monkeypatch.setenv("PATH", before(tmp_path / "bin"))
    for name in ("HOST", "NODROP_ROOT"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "REPOSITORY", tmp_path / "repository")
    monkeypatch.setattr(os, "execv", made.become)
    return made


@pytest.mark.parametrize("name", SYSTEMS)
def test_other_systems(host: StubbedRoot, name: str) -> None:
    """The command says what becomes of a built-in tun, before anything else."""
    host.tree()
    kernel = system_tree(host.root, name)
    beside = name in ("Ubuntu 24.04", "Proxmox VE 9")
    assert host.actions(f"install --kernel {kernel}")[0] == f"fit {kernel}"
    assert ("nodrop_tun" in host.printed) is beside
    write(host.root / f"lib/modules/{kernel}/modules.builtin", "a/tun.ko\na/vhost_net.ko\n")
    assert host.run(f"install --kernel {kernel} --dry-run") == 4
    assert host.ran == []


def test_from_the_sources_of_the_package(host: StubbedRoot) -> None:
    host.tree()
    wanted = [FIT, ADD, REMOVE, INSTALL, VERIFY, SETTLE]
    there = host.everything()
    assert host.actions("install") == wanted
    assert host.ran == []
    assert host.everything() == there
    assert host.run("install") == 0
    assert host.ran == wanted


def test_installed_modules_stay(host: StubbedRoot) -> None:
    host.tree()
    write(host.root / "dkms", f"nodrop/0.3.0, {KERNEL}, x86_64: installed\n")
    assert host.actions("install") == [VERIFY, SETTLE]
    fit = f"fit --source /usr/src {KERNEL}"
    actions = host.actions("install --source /usr/src")
    assert actions[:3] == [fit, REMOVE, INSTALL], "DKMS would keep the installed ones"
    write(host.root / "dkms", "nodrop/0.3.0: added\n")
    actions = host.actions("install")
    assert actions[:3] == [FIT, REMOVE, INSTALL], "the sources are not added again"


def test_other_kernels_get_the_new_version(host: StubbedRoot) -> None:
    host.clone()
    write(host.root / "dkms", "nodrop/0.2.0, 6.9, x86_64: installed\n")
    write(host.root / "usr/src/nodrop-0.1.0/a")
    actions = host.actions("install")
    assert actions[:2] == [FIT, "fit 6.9"], "built and checked before anything is installed"
    assert actions[2:] == [
        f"rm -rf {host.root}/usr/src/nodrop-0.1.0",
        "dkms remove -m nodrop -v 0.2.0 --all",
        f"rm -rf {host.root}/usr/src/nodrop-0.2.0",
        *actions[5:],
    ]
    assert actions.index(ADD) < actions.index(INSTALL)
    assert INSTALL.replace(KERNEL, "6.9") in actions


@pytest.mark.parametrize("end", ["77", "3"])
def test_dkms_fails(host: StubbedRoot, end: str) -> None:
    host.tree()
    write(host.root / "end", end)
    assert host.run("install") == 1
    assert host.ran[-1] == VERIFY, "modules that were copied in part are removed"


@pytest.mark.parametrize("words", ["", " --source /usr/src"])
def test_unsupported_kernel(host: StubbedRoot, words: str) -> None:
    programs(host.tree() / "dkms", {"fit": "exit 1"})
    assert host.run(f"install{words}") == 4
    assert host.ran == []


@pytest.mark.parametrize(
    "left",
    ["usr/local/bin/nodrop", "usr/src/nodrop-0.2.0/a", "lib/modules/5/updates/dkms/nodrop.ko"],
)
def test_uninstall_removes_leftovers(host: StubbedRoot, left: str) -> None:
    file = write(host.root / left)
    fallback = write(host.root / "etc/modprobe.d/zz-nodrop.conf")
    host.scripts(host.root / "repository")
    there = host.everything()
    assert host.actions("uninstall")[-2:] == [STOCK, SETTLE]
    assert host.everything() == there
    assert host.run("uninstall") == 0
    assert host.ran[0] == STOCK
    assert file.exists() is left.startswith("lib/")
    assert not fallback.exists()


SETTINGS = {
    "modprobe.d/zz-nodrop-set.conf": "options tun nodrop=0\noptions nodrop guard_ms=5\n",
    "udev/rules.d/81-nodrop-set.rules": f"{settings.rule('vnet*', True)}\n",
}


def uninstalled(host: StubbedRoot) -> None:
    host.scripts(host.root / "repository")
    assert host.run("uninstall") == 0


def purged(host: StubbedRoot) -> None:
    """Run the packages' scripts, below the root directory of the test."""
    for name in ("nodrop", "nodrop-dkms"):
        script = (REPOSITORY / f"debian/{name}.postrm").read_text()
        for folder in ("etc", "var"):
            script = script.replace(f" /{folder}/", f" {host.root}/{folder}/")
            script = script.replace(f"=/{folder}/", f"={host.root}/{folder}/")
        subprocess.run(["sh", "-c", script, name, "purge"], check=True)


@pytest.mark.parametrize("remove", [uninstalled, purged])
def test_removal_deletes_own_settings_only(
    host: StubbedRoot, remove: Callable[[StubbedRoot], None]
) -> None:
    write(host.root / "usr/local/bin/nodrop")
    own, foreign = [], []
    for name, lines in SETTINGS.items():
        file = write(host.root / "etc" / name, f"{settings.HEAD}\n{lines}")
        own.append(file)
        foreign.append(write(file.with_name(f"nodrop{file.suffix}"), lines))
    remove(host)
    assert [file.name for file in own if file.exists()] == []
    assert all(file.exists() for file in foreign)


def test_from_a_clone(host: StubbedRoot) -> None:
    host.clone()
    (host.root / f"lib/modules/{KERNEL}/build").mkdir(parents=True)
    (host.root / f"lib/modules/{KERNEL}/kernel").mkdir()
    assert host.actions("install")[0] == FIT
    assert host.ran == []
    assert host.run("install --kernel all --source /usr/src") == 0
    tree, local = host.root / "usr/src/nodrop-0.3.0", host.root / "usr/local"
    assert host.ran == [
        f"fit --source /usr/src {KERNEL}",
        f"lay modules {tree}",
        ADD,
        REMOVE,
        INSTALL,
        VERIFY,
        SETTLE,
        f"lay command {local}/lib/nodrop {local}/bin/nodrop",
        f"lay share {local}/share site-functions",
        f"lay docs {local}/share/doc/nodrop",
        f"manpages {local}/share/man",
    ]
    assert (host.root / "etc/modprobe.d/zz-nodrop.conf").exists()
    assert (local / "lib/systemd/system/nodrop-qdisc.service").exists()
    write(host.root / PACKAGED)
    assert host.actions("install")[-1] == SETTLE, "the package's"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("install", 4),  # from nowhere
        ("uninstall", 1),
        ("install --timeout 5", 2),
        ("livepatch load --kernel all", 2),
        ("livepatch load --source /x --built /y", 2),
        ("livepatch", 2),
    ],
)
def test_without_sources(host: StubbedRoot, words: str, status: int) -> None:
    assert host.run(words) == status
    assert host.ran == []


def test_refused(host: StubbedRoot) -> None:
    host.tree()
    assert host.run("install --source /nope") == 1
    assert host.run("-j install") == 2
    write(host.root / PACKAGED)
    assert host.run("uninstall") == 4, "the package's"
    programs(host.root / "bin", {"id": "echo 1000"})
    assert host.run("install") == 1
    assert host.ran == []
    assert host.run("install --dry-run") == 0


@pytest.mark.parametrize("state", ["ii ", "iF ", "iHR", "iU ", "iW ", "rc ", "un ", ""])
def test_package_installed_in_part(host: StubbedRoot, state: str) -> None:
    """dpkg must remove it."""
    installer = host.clone() / "dkms/install"
    write(host.root / "dpkg", f"{state}0.3.0\n" if state else "")
    there = state[:1] == "i"
    done = subprocess.run([installer, "-n", "-u"], capture_output=True, text=True, check=False)
    assert (done.returncode, "nodrop-dkms" in done.stderr) == (int(there), there)


@pytest.mark.parametrize(
    ("program", "status", "ran"),
    [("fit", 130, []), ("dkms", 0, [FIT, ADD, REMOVE, INSTALL, VERIFY, SETTLE])],
)
def test_interrupted(host: StubbedRoot, program: str, status: int, ran: list[str]) -> None:
    """A signal ends the installer, until DKMS installs: then it is completed."""
    interrupt = "kill -TERM $PPID; sleep 0.3"
    place = {"fit": host.tree() / "dkms", "dkms": host.root / "bin"}[program]
    programs(place, {program: f'[ "$1" = status ] || {interrupt}; {STUBS.get(program, "")}'})
    assert host.run("install") == status
    assert host.ran == ran


LAY = REPOSITORY / "packaging/lay"
IMPORTS = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import nodrop
assert list(nodrop.__path__) == [sys.argv[1] + "/nodrop"]
for module in pkgutil.walk_packages(nodrop.__path__, "nodrop."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
found = {name.split(".")[0] for name in sys.modules}
assert not found & {"bench", "lab", "matplotlib", "proof"}, found
"""


def test_installed_command_is_complete(tmp_path: Path) -> None:
    folder, start = tmp_path / "share", tmp_path / "bin/nodrop"
    subprocess.run([LAY, "command", folder, start], check=True, timeout=60)
    subprocess.run([sys.executable, "-I", "-c", IMPORTS, folder], check=True, timeout=60)
    listed = subprocess.run([start, "--help"], check=True, capture_output=True, timeout=60)
    assert b"status" in listed.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["dkms", "kmod", "nodrop"]
    assert (folder / "nodrop/schemas/status.json").exists()


def test_sources_for_dkms_are_complete(tmp_path: Path) -> None:
    subprocess.run([LAY, "modules", tmp_path], check=True, timeout=60)
    needed = "import sys; sys.path.insert(0, sys.argv[1]); import nodrop.host.modules"
    subprocess.run([sys.executable, "-IB", "-c", needed, tmp_path], check=True, timeout=60)
    assert "#MODULE_VERSION#" not in (tmp_path / "dkms.conf").read_text()
    assert not (tmp_path / "kmod/flow/test").exists()


@pytest.mark.parametrize(
    ("call", "dkms", "finish", "ran", "status"),
    [
        ("configure", 0, 0, ["install finish"], 0),
        ("configure", 0, 1, ["install finish"], 1),
        ("configure", 6, 1, ["install check"], 6),
        ("abort-upgrade", 0, 0, ["install finish"], 0),
        ("abort-remove", 6, 0, [], 0),
    ],
)
def test_postinst(
    tmp_path: Path, call: str, dkms: int, finish: int, ran: list[str], status: int
) -> None:
    """Modules that DKMS copied in part are removed; a failed upgrade builds again."""
    programs(tmp_path / "dkms", {"install": f'echo "install $*"; exit {finish}'})
    text = (REPOSITORY / "debian/nodrop-dkms.postinst").read_text(encoding="utf-8")
    text = text.replace("/usr/src/nodrop-#VERSION#", str(tmp_path)).replace("#VERSION#", "1")
    text = text.replace("#DEBHELPER#", f'case "$1" in configure) (exit {dkms}) ;; esac')
    script = write(tmp_path / "postinst", text)
    done = subprocess.run(["sh", script, call, "2"], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == (ran, status)


def test_installer_that_cannot_be_run(
    host: StubbedRoot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> NoReturn:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        raise PermissionError(errno.EACCES, "Permission denied")

    host.tree()
    monkeypatch.setattr(os, "execv", fail)
    assert host.run("install") == 1
    assert "Permission denied" in capsys.readouterr().err
