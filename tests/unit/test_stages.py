# SPDX-License-Identifier: GPL-2.0-only
"""scripts/test: each stage within its limit, the evidence of all, a status that is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from script import load

LIMIT_S = 30.0
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("test", monkeypatch)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    place = tmp_path / "out"
    place.mkdir()
    (place / "repeated.txt").touch()
    return place


def make(script: ModuleType, out: Path, *stages: object) -> tuple[list[tuple[str, str]], str]:
    """Run stages; return (name, outcome) of each, and what was logged."""
    with (out / "log.txt").open("ab") as log:
        ended = script.run(stages, out, log)
    return [(stage.name, stage.outcome) for stage in ended], (out / "log.txt").read_text()


def ended_already(pid: int) -> bool:
    """Whether a process is gone or waits only for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_all_pass(script: ModuleType, out: Path) -> None:
    ended, log = make(
        script,
        out,
        script.Stage("first", LIMIT_S, ("echo", "from aside"), aside=True),
        script.Stage("second", LIMIT_S, ("bash", "-c", "echo from before; sleep 1")),
        script.Stage("third", LIMIT_S, ("echo", "from after"), needs="first"),
    )
    assert ended == [("first", "passed"), ("second", "passed"), ("third", "passed")]
    assert log.index("\nfrom before") < log.index("\nfrom aside") < log.index("\nfrom after")


def test_a_stage_that_hangs_ends_in_its_limit(
    script: ModuleType, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "END_S", 0.5)
    pid = tmp_path / "pid"
    hangs = f"trap '' INT; echo begins; sleep 600 & echo $! >{pid}; wait"
    started = time.monotonic()
    ended, log = make(
        script,
        out,
        script.Stage("hangs", 1.0, ("bash", "-c", hangs)),
        script.Stage("later", LIMIT_S, ("true",)),
    )
    assert time.monotonic() - started < LIMIT_S
    assert ended == [("hangs", "timeout"), ("later", "passed")]
    assert "begins" in log
    assert ended_already(int(pid.read_text()))


def test_a_test_that_hangs_for_good_is_named(
    script: ModuleType, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal reaches it, and its limit is that of its stage."""
    monkeypatch.setattr(script, "END_S", 0.5)
    (tmp_path / "conftest.py").symlink_to(Path(__file__).parents[1] / "conftest.py")
    (tmp_path / "test_it.py").write_text(
        "import signal, time\ndef test_hangs():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "    time.sleep(600)\n"
    )
    tests = (*PYTEST, "--timeout=600", str(tmp_path / "test_it.py"))
    ended, log = make(script, out, script.Stage("it", 8.0, tests))
    assert ended == [("it", "timeout")]
    assert "ran at the end: " in log
    assert "test_it.py::test_hangs" in log.rpartition("ran at the end: ")[2]


def test_what_needs_a_stage_that_failed_does_not_run(script: ModuleType, out: Path) -> None:
    ended, log = make(
        script,
        out,
        script.Stage("kernel", LIMIT_S, ("bash", "-c", "echo gcc is missing; exit 1"), aside=True),
        script.Stage("guests", LIMIT_S, ("touch", str(out / "ran")), needs="kernel"),
    )
    assert ended == [("kernel", "failed"), ("guests", "not run")]
    assert "gcc is missing" in log
    assert not (out / "ran").exists()


def test_a_test_that_hangs_is_named_and_the_others_are_reported(
    script: ModuleType, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(
        "import time\ndef test_good(): pass\ndef test_hangs(): time.sleep(600)\n"
        "def test_late(): pass\n"
    )
    tests = (*PYTEST, "--timeout=1", f"--junitxml={out}/it.xml", str(tmp_path / "test_it.py"))
    with (out / "log.txt").open("ab") as log:
        ended = script.run([script.Stage("it", LIMIT_S, tests)], out, log)
    assert ended[0].outcome == "failed"
    assert ended[0].counts == Counter(passed=2, failed=1)
    assert "test_hangs FAILED" in (out / "log.txt").read_text()
    assert "test_hangs" in script.slowest(out)[0]


def test_tests_after_the_deadline_fail_at_once(tmp_path: Path) -> None:
    """A stage stops its tests in time to tell their results."""
    (tmp_path / "conftest.py").symlink_to(Path(__file__).parents[1] / "conftest.py")
    (tmp_path / "test_it.py").write_text("def test_good(): pass\n")
    env = {**os.environ, "NODROP_DEADLINE": f"{time.monotonic():.1f}"}
    done = subprocess.run([*PYTEST, str(tmp_path)], env=env, timeout=LIMIT_S, check=False)
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("2905 passed, 14 skipped in 102.17s (0:01:42)", {"passed": 2905, "skipped": 14}),
        (
            "= 2 failed, 9 passed, 1 error, 30 subtests passed in 61.00s (0:01:01) =",
            {"failed": 3, "passed": 9},
        ),
        ("FAILED tests/x.py::test_y - 3 passed in 4 tries", {}),
    ],
)
def test_the_closing_line(script: ModuleType, line: str, wanted: dict[str, int]) -> None:
    assert +script.counted(f"first\n{line}\nlast") == Counter(wanted)


def test_the_report(script: ModuleType, out: Path) -> None:
    (out / "repeated.txt").write_text("A guest is booted again (DiedAtBoot): x\nits log\n\n")
    ended = [
        script.Ended("unit", "passed", 3.0, 60.0, Counter(passed=7, skipped=1)),
        script.Ended("guests", "timeout", 90.0, 90.0, Counter(passed=2, failed=1)),
    ]
    words, passed = script.report(ended, 93.0, out)
    assert not passed
    assert words.splitlines()[-2:] == [
        "repeated: A guest is booted again (DiedAtBoot): x",
        "9 passed, 1 failed, 1 skipped",
    ]
    result = json.loads((out / "result.json").read_text())
    assert result["outcome"] == "failed"
    assert [stage["outcome"] for stage in result["stages"]] == ["passed", "timeout"]
    assert len(result["repeated"]) == 1


def test_the_limits_are_forty_minutes_at_most(script: ModuleType, tmp_path: Path) -> None:
    stages = script.stages(tmp_path)
    aside = {stage.name: stage.limit_s for stage in stages if stage.aside}
    beside = [stage.limit_s for stage in stages if stage.name in ("lint", "unit")]
    alone = [
        stage.limit_s for stage in stages if stage.name in ("bootstrap", "kernel lint", "guests")
    ]
    ends = 3 * script.END_S * len(stages)
    assert len(aside) + len(beside) + len(alone) == len(stages)
    assert max(sum(aside.values()), sum(beside)) + sum(alone) + ends <= 40 * 60


def test_a_stage_that_did_not_pass_is_a_failure(script: ModuleType, out: Path) -> None:
    """The last line alone must not read like a success."""
    ended = [
        script.Ended("kernel", "failed", 3.0, 60.0),
        script.Ended("guests", "not run", 0.0, 9.0),
    ]
    words, passed = script.report(ended, 3.0, out)
    assert not passed
    assert words.splitlines()[-1] == "0 passed, 2 failed, 0 skipped"
