# SPDX-License-Identifier: GPL-2.0-only
"""What the measuring commands print is what their schemas say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from schema import SCHEMAS, validate

from nodrop import cli
from nodrop.bench import session

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "results"


def printed(
    words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0
) -> dict[str, Any]:
    assert cli.main(words) == status
    out, _ = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    assert (found["schema"], found["command"]) == (1, next(w for w in words if w[0] != "-"))
    return found


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Measurements take what was measured before."""

    def measure(_scenarios: Any, _variants: Any, out: Path, _progress: Any) -> None:
        shutil.copytree(RESULTS / "tap", out)

    monkeypatch.setattr(session, "measure", measure)
    return tmp_path / "out"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    validate("bench", printed(["-j", "bench", "--list"], capsys))


def test_bench(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(["-q", "bench", "-j", "tap", "--out", str(measured)], capsys)
    validate("bench", found)
    assert found["scenario"] == "tap"


def test_demo(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validate("demo", printed(["-q", "demo", "-j", "--out", str(measured)], capsys))


@pytest.mark.parametrize("name", ["tap", "nullvpn", "guard"])
def test_report(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RESULTS / name, tmp_path / "run")
    validate("report", printed(["report", str(tmp_path / "run"), "-j"], capsys))


def test_keys_that_nobody_wrote_down(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(["-j", "bench", "--list"], capsys)
    with pytest.raises(ValidationError):
        validate("bench", {**found, "more": 1})
    with pytest.raises(ValidationError):
        validate("bench", {**found, "schema": 2})


def test_schemas_are_schemas_and_none_takes_everything() -> None:
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_text())
        Draft202012Validator.check_schema(schema)
        with pytest.raises(ValidationError):
            Draft202012Validator(schema).validate({})
