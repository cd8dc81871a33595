# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab``: command lines, exit statuses, JSON output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError
from schema import answer, validate

from bench import scenario, session
from bench.cli import main
from bench.rundir import META_NAME

RESULTS = Path(__file__).resolve().parents[3] / "results"
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "status",
        "-n blue list",
        "bench teleport",
        "bench tap --pairs 0",
        "bench tap --variants x",
        "bench tap --variants old",
    ],
)
def test_usage_errors(line: str, capsys: Capture) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def test_list(capsys: Capture) -> None:
    assert set(answer(capsys, "list", main=main)["scenarios"]) == set(scenario.known())


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace a measurement by recorded results, as if they were measured now."""

    def measure(_scenarios: Any, _variants: Any, out: Path, _progress: Any, **_: Any) -> None:
        shutil.copytree(RESULTS / "tap", out)
        meta = json.loads((out / META_NAME).read_text())
        meta["source"]["measured_by"] = "0" * 16
        (out / META_NAME).write_text(json.dumps(meta))

    monkeypatch.setattr(session, "measure", measure)
    monkeypatch.setattr("bench.report.plot.svg", lambda *_: "")
    return tmp_path / "out"


def test_bench_and_demo(measured: Path, capsys: Capture) -> None:
    found = answer(capsys, "bench", "tap", "--out", f"{measured}/1", main=main)
    assert found["scenario"] == "tap"
    assert {*found["variants"]} == {"stock", "upstream", "nodrop", "old"}
    for more in ({"more": 1}, {"command": "demo"}, {"schema": 1}):
        with pytest.raises(ValidationError):
            validate("bench", {**found, **more})
    assert answer(capsys, "demo", "--out", f"{measured}/2", main=main)["command"] == "demo"


def test_report(tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(RESULTS / "guard", tmp_path / "run")
    assert answer(capsys, "report", f"{tmp_path}/run", main=main)["command"] == "report"
    assert main(["report", str(tmp_path / "none")]) == 1
