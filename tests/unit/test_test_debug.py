# SPDX-License-Identifier: GPL-2.0-only
"""scripts/test-debug: goes on after a failure, keeps its time, tells what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from script import load


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("test-debug", monkeypatch)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("110 passed in 2.23s", "110 passed"),
        ("== 2 failed, 9 passed, 1 skipped, 30 subtests passed in 61.00s (0:01:01) ==", None),
        ("FAILED tests/x.py::test_y - 3 passed in 4 tries", ""),
    ],
)
def test_the_closing_line(
    script: ModuleType, line: str, wanted: str | None, tmp_path: Path
) -> None:
    if wanted is None:
        wanted = "2 failed, 9 passed, 1 skipped, 30 subtests passed"
    step = script.Step("debug", "tests", ())
    assert script.told(step, f"first\n{line}\nlast", tmp_path) == wanted


def test_what_the_torture_tells(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "kasan").mkdir()
    result = {"events": 5, "packets": {"delivered": 70}, "violation": ""}
    (tmp_path / "kasan/torture-7.json").write_text(json.dumps(result))
    step = script.Step("kasan", "torture 7", ())
    assert script.told(step, "", tmp_path) == "5 events, 70 packets, no violation"


def test_each_flavour_has_the_tests_and_every_seed(script: ModuleType, tmp_path: Path) -> None:
    names = [step.name for step in script.steps("kasan", tmp_path)]
    assert names == ["tests", *(f"torture {seed}" for seed in script.SEEDS)]


def test_it_goes_on_and_keeps_its_time(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(flavour: str, _out: Path) -> Iterator[object]:
        yield script.Step(flavour, "fails", ("sh", "-c", "echo '1 failed in 0.1s'; exit 1"))
        words = 'test "$NODROP_TEST_FLAVOUR" = debug && echo "4 passed in 0.1s"'
        yield script.Step(flavour, "passes", ("sh", "-c", words))
        yield script.Step(flavour, "hangs", ("sleep", "60"))

    monkeypatch.setattr(script, "steps", steps)
    assert not script.test(("debug",), tmp_path, 2 / 60)
    lines = (tmp_path / "summary.md").read_text().splitlines()[2:]
    assert [line.rpartition("| ")[2] for line in lines] == ["**FAILED** |", "ok |", "**FAILED** |"]
    assert "4 passed" in lines[1]
    assert "not finished" in lines[2]
    assert (tmp_path / "debug-fails.log").read_text() == "1 failed in 0.1s\n"


def test_a_step_that_hangs_leaves_the_others_their_time(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(flavour: str, _out: Path) -> Iterator[object]:
        yield script.Step(flavour, "hangs", ("sleep", "60"))
        yield script.Step(flavour, "passes", ("sh", "-c", "sleep 1.5"), keeps_s=2.5)

    monkeypatch.setattr(script, "steps", steps)
    assert not script.test(("debug",), tmp_path, 4 / 60)
    lines = (tmp_path / "summary.md").read_text().splitlines()[2:]
    assert [line.rpartition("| ")[2] for line in lines] == ["**FAILED** |", "ok |"]
