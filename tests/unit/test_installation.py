# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop install`` and ``uninstall``: from where, by which commands, and what is said."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from nodrop.cli import main
from nodrop.commands import install as command
from nodrop.host.installation import Installation, sentences

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMAS = Path(command.__file__).parents[1] / "schemas"
KERNEL = "6.1.0-99-amd64"
STUBS = {
    "dpkg-query": 'cat "$HOST/dpkg" 2>/dev/null || exit 1',
    "dkms": 'echo "dkms $*" >>"$HOST/ran"; case $1 in '
    'status) cat "$HOST/dkms" 2>/dev/null || true ;; '
    'install) echo "nodrop: it does not fit"; exit "$(cat "$HOST/end" 2>/dev/null || echo 0)" ;; '
    "esac",
}


class Host:
    """A root with stubs for the programs that are asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in STUBS.items():
            self.script(f"bin/{name}", text)

    def write(self, path: str, text: str = "") -> Path:
        made = self.root / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        return made

    def script(self, path: str, text: str) -> None:
        self.write(path, f"#!/bin/sh\n{text}\n").chmod(0o755)

    def tree(self, version: str = "0.3.0") -> Path:
        """DKMS has the sources."""
        conf = self.write(f"usr/src/nodrop-{version}/dkms.conf")
        for name in ("fit", "verify", "settle"):
            self.script(
                f"usr/src/nodrop-{version}/{name}",
                f'echo "{name} $*" >>"$HOST/ran"; echo "nodrop: {name} said this" >&2',
            )
        return conf.parent

    @property
    def ran(self) -> list[str]:
        path = self.root / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith("dkms status")]

    def everything(self) -> list[tuple[str, int]]:
        """All files and when they were changed, but for what the stubs have noted."""
        found = [path for path in sorted(self.root.rglob("*")) if path.name != "ran"]
        return [(str(path), path.stat().st_mtime_ns) for path in found if path.is_file()]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOST", str(tmp_path))

    def place(release: str | None = None) -> Installation:
        return Installation(tmp_path, tmp_path / "repository", release or KERNEL)

    monkeypatch.setattr(command, "Installation", place)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["-q", *words])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_nothing_to_install_from(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert host.root
    status, _, err = run(capsys, "install")
    assert status == 4
    assert "nodrop-dkms" in err
    assert "apt install" in err


def test_by_dkms(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    tree = host.tree()
    wanted = [
        "dkms add -m nodrop -v 0.3.0",
        f"dkms install -m nodrop -v 0.3.0 -k {KERNEL}",
        f"{tree}/verify 0.3.0 {KERNEL}",
        f"{tree}/settle in",
    ]
    before = host.everything()
    status, out, _ = run(capsys, "install", "--dry-run")
    assert (status, out.splitlines()) == (0, wanted)
    assert host.ran == []
    assert host.everything() == before
    status, out, _ = run(capsys, "install")
    assert status == 0
    assert host.ran == [line.replace(f"{tree}/", "") for line in wanted]
    assert f"Kernel {KERNEL} loads nodrop's modules" in out
    assert "settle said this" in out
    assert "In memory now: no tun module." in out


def test_what_dkms_has_is_not_built_again(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    tree = host.tree()
    host.write("dkms", f"nodrop/0.3.0, {KERNEL}, x86_64: installed\n")
    out = run(capsys, "install", "--dry-run")[1]
    assert out.splitlines() == [f"{tree}/verify 0.3.0 {KERNEL}", f"{tree}/settle in"]
    out = run(capsys, "install", "--dry-run", "--source", "/usr/src")[1]
    assert out.splitlines()[:2] == [
        f"{tree}/fit --source /usr/src {KERNEL}",
        f"dkms install -m nodrop -v 0.3.0 -k {KERNEL}",
    ]


@pytest.mark.parametrize(("end", "status"), [("77", 4), ("3", 1)])
def test_a_kernel_that_it_does_not_fit(
    host: Host, capsys: pytest.CaptureFixture[str], end: str, status: int
) -> None:
    host.tree()
    host.write("end", end)
    got, out, err = run(capsys, "install")
    assert (got, out) == (status, "")
    assert "it does not fit" in err
    assert not any(line.startswith("settle") for line in host.ran)
    assert host.ran[-1] == f"verify 0.3.0 {KERNEL}", "what was left half-copied is cleared"


def test_a_package_is_removed_by_apt(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    host.write("dpkg", "ii ")
    status, _, err = run(capsys, "uninstall")
    assert status == 4
    assert "apt purge nodrop-dkms" in err
    host.write("dpkg", "rc ")
    assert "scripts/install is missing" in run(capsys, "uninstall")[2]


def test_by_scripts_install(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    host.write("repository/scripts/lay")
    host.script(
        "repository/scripts/install",
        'if [ "$1" = -n ]; then echo "would $*"; exit; fi; echo "script $*" >>"$HOST/ran"',
    )
    assert run(capsys, "install", "--dry-run")[1] == f"would -n -k {KERNEL}\n"
    assert run(capsys, "uninstall", "--dry-run")[1] == "would -n -u\n"
    assert host.ran == []
    assert run(capsys, "install", "--kernel", "all", "--source", "/usr/src")[0] == 0
    assert "Every kernel loads its own" in run(capsys, "uninstall")[1]
    assert host.ran == ["script -k all -s /usr/src", "script -u"]


def test_nothing_to_remove(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert host.root
    assert run(capsys, "uninstall")[:2] == (
        0,
        "Nothing of nodrop is installed.\nIn memory now: no tun module.\n",
    )


def test_only_root(
    host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    host.tree()
    assert run(capsys, "install", "--dry-run")[0] == 0
    status, _, err = run(capsys, "install")
    assert (status, host.ran) == (1, [])
    assert "Only root" in err


def test_json_tells_what_is_in_memory(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    host.write("sys/module/tun/parameters/nodrop", "Y")
    host.write(f"lib/modules/{KERNEL}/updates/dkms/nodrop.ko.xz")
    told = json.loads(run(capsys, "-j", "install", "--dry-run")[1])
    schema = json.loads((SCHEMAS / "install.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert told["loaded"] == "nodrop"
    assert told["installed"] is True
    assert told["actions"][0] == "dkms add -m nodrop -v 0.3.0"
    assert (told["dry_run"], told["changed"]) == (True, False)


def test_livepatch_alone_takes_what_was_built(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert host.root
    assert run(capsys, "install", "--built", "/x")[0] == 2
    assert run(capsys, "install", "--live", "--kernel", "all")[0] == 2


def test_the_script_prints_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real scripts/install, in a copy, with DKMS that notes what it is told to do."""
    copy = tmp_path / "clone"
    for name in ("scripts", "kmod"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("build"))
    made = Host(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOST", str(tmp_path))
    before = made.everything()
    place = Installation(tmp_path, copy, KERNEL)
    told = place.told(place.to_install())
    assert told[:2] == [f"cd {copy}", f"kmod/fit {KERNEL}"]
    assert "rm -rf /usr/local/lib/nodrop /usr/local/share/doc/nodrop" in told
    assert "scripts/lay command /usr/local/lib/nodrop /usr/local/bin/nodrop" in told
    version = (copy / "kmod/VERSION").read_text().strip()
    assert f"dkms install -m nodrop -v {version} -k {KERNEL}" in told
    made.tree()
    told = place.told(place.to_uninstall())
    assert any("/etc/modprobe.d/nodrop.conf" in line for line in told)
    assert told[-2:] == ["kmod/place stock", "kmod/settle out"]
    assert made.ran == []
    assert [entry for entry in made.everything() if "usr/src" not in entry[0]] == before


def test_an_interrupt_does_not_stop_dkms(host: Host) -> None:
    """It comes with DKMS's first line; DKMS ends, and what follows is not run."""
    host.tree()
    host.script(
        "bin/dkms", 'case $1 in status) ;; *) echo "$1"; sleep 0.3; echo "$1" >>"$HOST/ran" ;; esac'
    )
    place = Installation(host.root, host.root / "repository", KERNEL)

    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.run(place.to_install(), interrupt)
    assert host.ran == ["add"]


def test_what_scripts_say_is_no_command_for_the_terminal(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = host.tree()
    host.script(f"{tree.relative_to(host.root)}/settle", r"printf 'nodrop: qemu\033[2J\rx\n' >&2")
    out = run(capsys, "install")[1]
    assert "qemu?[2J" in out
    assert out.replace("\n", "").isprintable()


def test_sentences_of_nodrop_alone() -> None:
    assert sentences("Building...\nnodrop: a\nnodrop: a\n  nodrop: b\n") == ["a", "b"]


def test_the_time_of_the_livepatch_is_for_the_livepatch(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("install", "uninstall"):
        status, _, err = run(capsys, name, "--timeout", "5")
        assert (status, "--live" in err) == (2, True)


def test_a_source_that_is_not_there(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.tree()
    status, out, err = run(capsys, "install", "--dry-run", "--source", "/nope")
    assert (status, out, "/nope" in err) == (1, "", True)
