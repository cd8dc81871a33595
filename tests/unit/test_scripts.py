# SPDX-License-Identifier: GPL-2.0-only
"""scripts/bootstrap on incomplete machines, scripts/checks.py and its table."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script import SCRIPTS, load
from stubs import Done, programs, write

from lab.sources import REPOSITORY

USUAL = "/usr/sbin:/usr/bin:/sbin:/bin"
ALWAYS_THERE = "bash cat cmp dirname flock grep mktemp rm sed tail timeout"
VENV = """
import os, sys, pathlib
if __name__ == "__main__":
    python = pathlib.Path(sys.argv[1], "bin/python")
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\\nexit " + os.environ["PIP"])
    python.chmod(0o755)
"""
"""Replaces Python's module: creates an environment whose pip ends with the status PIP."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    place = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "scripts", place / "scripts")
    shutil.copy(REPOSITORY / "pyproject.toml", place)
    write(place / "dkms/lib.sh", (REPOSITORY / "dkms/lib.sh").read_text())
    write(tmp_path / "modules/venv.py", VENV)
    return place


def bootstrap(checkout: Path, path: Path | str, pip: int = 0) -> Done:
    script = ["bash", str(checkout / "scripts/bootstrap")]
    env = {"PATH": str(path), "PYTHONPATH": str(checkout.parent / "modules"), "PIP": str(pip)}
    return subprocess.run(script, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("user", "apt", "calls"),
    [
        (1000, "exit 9", []),
        (0, "exit 100", ["install", "update"]),
        (0, "exit 0", ["install"]),
        (0, "", []),  # no apt at all
    ],
)
def test_missing_packages(
    checkout: Path, tmp_path: Path, user: int, apt: str, calls: list[str]
) -> None:
    place = tmp_path / "bin"
    programs(place, {"id": f"echo {user}", "python3": "exit 1"})
    for name in ALWAYS_THERE.split():
        found = shutil.which(name)
        assert found, name
        (place / name).symlink_to(found)

    called = write(tmp_path / "calls")
    if apt:
        programs(place, {"apt-get": f'echo "$1" >>{called}\n{apt}'})
    done = bootstrap(checkout, place)
    installs = apt == "exit 0"
    assert done.returncode == (0 if installs else 1)
    assert installs or "gcc" in done.stderr
    assert called.read_text().split() == calls
    assert (checkout / ".venv").exists() is installs


def test_environment_is_rebuilt_when_pins_change(checkout: Path) -> None:
    programs(checkout / "bin", {"apt-get": "exit 9"})
    path = f"{checkout}/bin:{USUAL}"
    assert bootstrap(checkout, path, pip=1).returncode == 1
    assert not (checkout / ".venv").exists()
    mark = checkout / ".venv/mark"
    for pins, kept in (("", False), ("", True), ("other==1\n", False)):
        with (checkout / "scripts/requirements.txt").open("a") as requirements:
            requirements.write(pins)
        assert bootstrap(checkout, path).returncode == 0
        assert mark.exists() is kept
        mark.touch()


JUNIT = '<testsuites><testsuite tests="10" failures="1" errors="1" skipped="1"/></testsuites>'
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from checks import Stage, report, run
out = Path(sys.argv[2])
(out / "repeated.txt").touch()
signals = "sleep 1; kill -INT $PPID; " if sys.argv[3] == "interrupt" else ""
stages = (
    Stage("background", 3600, ("sleep", sys.argv[4]), background=True),
    Stage("tests", 3600, ("sh", "-c", f"echo hello; {signals}sleep {sys.argv[4]}")),
    Stage("last", 3600, ("true",), needs="background"),
)
with (out / "log.txt").open("wb") as log:
    report(run(stages, out, log), 1.0, out)
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("checks.py", monkeypatch)


@pytest.fixture
def clone(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository of two files, one of them covered by the check."""
    for name in ("covered", "beside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.py").write_text("x = 1")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script.sources, "REPOSITORY", tmp_path)
    monkeypatch.setattr(script, "OUT", tmp_path / "out")
    return tmp_path


def only(script: ModuleType, monkeypatch: pytest.MonkeyPatch, command: str) -> Any:
    """Return a check that runs a shell command, without any preparation."""
    check = replace(script.CHECKS[0], covers="covered", limit=60)
    stage = script.Stage(check.name, 60.0, ("sh", "-c", command))
    monkeypatch.setattr(script, "check_stages", lambda *_: (stage,))
    return check


def change(script: ModuleType, path: Path, text: str) -> None:
    path.write_text(text)
    script.content.cache_clear()


def test_every_row_can_be_run(script: ModuleType, tmp_path: Path) -> None:
    packages = (SCRIPTS / "packages.txt").read_text().splitlines()
    for check in script.CHECKS:
        assert check.limit <= 1500
        *_, last = script.check_stages(check, tmp_path)
        assert last.limit_s == check.limit
        assert f"[{check.bootstrap}]" in packages or not check.bootstrap
        for path in check.covers.split():
            listed = script.TABLE["paths"][path[1:]].split() if path[0] == "@" else [path]
            for one in listed:
                assert script.git("ls-files", "--", one), one
    gate = script.gate_stages(tmp_path, debian=True)
    assert {stage.needs for stage in gate} <= {"", *(stage.name for stage in gate)}
    lines = [row["run"] for row in script.TABLE["gate"]] + [row.run for row in script.CHECKS]
    for line in lines:
        for word in shlex.split(line):
            assert not word.startswith(("tests/", "scripts/")) or (REPOSITORY / word).exists(), word


def test_find_a_check_or_its_parts(script: ModuleType) -> None:
    for words, names in (
        (["mutants", "3"], ["mutants-3"]),
        (["mutants"], ["mutants-1", "mutants-2", "mutants-3"]),
        (["kernels"], ["kernels-6", "kernels-vm", "kernels-7"]),
        (["lab"], ["lab"]),
        (["nothing"], []),
    ):
        assert [check.name for check in script.find(*words)] == names


def test_result_is_fresh_until_code_changes(
    script: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = only(script, monkeypatch, "true")
    assert script.state_of(check)[0] == "never run"
    assert script.run_check(check) == 0
    state, result = script.state_of(check)
    assert (state, result["outcome"], len(result["commit"])) == ("fresh", "passed", 40)
    change(script, clone / "beside/file.py", "x = 2")
    change(script, clone / "covered/file.py", "# why\nx = 1")
    assert script.state_of(check)[0] == "fresh"
    change(script, clone / "covered/file.py", "x = 2")
    assert script.state_of(check)[0] == "stale"
    check = only(script, monkeypatch, "exit 3")
    assert script.run_check(check) == 1
    assert script.state_of(check)[0] == "failed"
    assert (clone / "out/checks" / check.name / "log.txt").exists()


@pytest.mark.parametrize(
    ("name", "text", "comment", "code"),
    [
        ("a.c", "int x;\n", "int x; /* why */\n", "int y;\n"),
        ("a.py", "x = 1\n", "# why\nx = 1\n", "x = 2\n"),
        ("a.toml", 'x = "# y"\n', '# why\nx = "# y"  # why\n', 'x = "# z"\n'),
        ("a", "#!/bin/sh\nx\n", "#!/bin/sh\n# why\n\t#\nx\n", "#!/bin/bash\nx\n"),
        ("lib", "# shellcheck shell=bash\nx\n", "# shellcheck shell=bash\n# why\nx\n", "#x\n"),
    ],
)
def test_comments_are_no_code(
    script: ModuleType, tmp_path: Path, name: str, text: str, comment: str, code: str
) -> None:
    contents = []
    for version in (text, comment, code):
        change(script, tmp_path / name, version)
        contents.append(script.content(tmp_path / name))
    assert contents[0] == contents[1] != contents[2]


def test_tests_are_counted(script: ModuleType, tmp_path: Path) -> None:
    junit = tmp_path / "some.xml"
    assert script.counted(junit) == {}
    junit.write_text(JUNIT)
    assert script.counted(junit) == {"passed": 7, "failed": 2, "skipped": 1}


def outcomes(out: Path, how: str, seconds: str) -> dict[str, str]:
    command = [sys.executable, "-c", PROGRAM, str(SCRIPTS), str(out), how, seconds]
    # Its output has no reader.
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.close()
    assert process.returncode == 0
    result = json.loads((out / "result.json").read_text())
    return {stage["name"]: stage["outcome"] for stage in result["stages"]}


def test_all_stages_run_with_a_closed_pipe(tmp_path: Path) -> None:
    assert set(outcomes(tmp_path, "", "0").values()) == {"passed"}
    assert "hello\n" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize(("program", "outcome"), [("true", "passed"), ("false", "failed")])
def test_stage_that_ended_in_time_and_is_looked_at_late(
    script: ModuleType, tmp_path: Path, program: str, outcome: str
) -> None:
    """In the background, beside stages that take longer than its limit."""
    running = script.Running(script.Stage("packages", 3600, (program,)), {}, tmp_path)
    end = time.monotonic() + 60
    while not running.poll() and time.monotonic() < end:
        time.sleep(0.01)
    running._started -= 7200
    with (tmp_path / "log.txt").open("wb") as log:
        assert running.follow(log, []).outcome == outcome


def test_interrupt_ends_background_stages(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "interrupt", "3000") == {
        "background": "failed",
        "tests": "interrupted",
        "last": "not run",
    }
