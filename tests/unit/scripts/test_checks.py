# SPDX-License-Identifier: GPL-2.0-only
"""scripts/check: the table is valid, and results depend on the covered sources."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from script import load

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("check", monkeypatch)


@pytest.fixture
def clone(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository of two files, one of them covered by the check."""
    for name in ("covered", "beside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("before")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    stages = script.sys.modules["stages"]
    for module in (script, stages):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results/checks")
    monkeypatch.setattr(script, "OUT", tmp_path / "out")
    return tmp_path


def only(script: ModuleType, monkeypatch: pytest.MonkeyPatch, command: str) -> Any:
    """Return a check that runs a shell command, without any preparation."""
    check = replace(script.CHECKS[0], covers="covered", limit_s=60)
    stage = script.Stage(check.name, 60.0, ("sh", "-c", command))
    monkeypatch.setattr(script, "stages", lambda *_: (stage,))
    return check


def test_every_row_can_be_run(script: ModuleType, tmp_path: Path) -> None:
    names = [check.name for check in script.CHECKS]
    assert len(set(names)) == len(names)
    for check in script.CHECKS:
        assert check.limit_s <= script.LONGEST_S
        for path in check.covers.split():
            assert script.git("ls-files", "--", path), path
        for word in shlex.split(check.argv):
            assert not word.startswith("tests/") or (ROOT / word).exists(), word
        if check.needs:
            assert (ROOT / f"scripts/packages-{check.needs}.txt").exists()
        *_, last = script.stages(check, tmp_path)
        assert last.limit_s == check.limit_s


def test_find_part_or_part_of_the_day(script: ModuleType) -> None:
    assert script.find("mutants", "3").name == script.find("mutants-3").name == "mutants-3"
    assert script.find("mutants").name.startswith("mutants-")
    assert script.find("kernels").name == "kernels"
    assert script.find("nothing") is None


def test_result_is_fresh_until_sources_change(
    script: ModuleType, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = only(script, monkeypatch, "echo '7 passed, 1 skipped in 3.00s'")
    assert script.state_of(check)[0] == "never run"
    assert script.run_check(check) == 0
    result = json.loads((clone / f"results/checks/{check.name}.json").read_text())
    assert result["outcome"] == "passed"
    assert result["counts"] == {"passed": 7, "skipped": 1, "failed": 0}
    assert len(result["commit"]) == 40
    (clone / "beside/file").write_text("after")
    assert script.state_of(check)[0] == "fresh"
    (clone / "covered/file").write_text("after")
    assert script.state_of(check)[0] == "stale"
    check = only(script, monkeypatch, "exit 3")
    assert script.run_check(check) == 1
    assert script.state_of(check)[0] == "failed"
    assert (clone / "out" / check.name / "log.txt").exists()
