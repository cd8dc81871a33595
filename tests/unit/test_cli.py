# SPDX-License-Identifier: GPL-2.0-only
"""The command line: what it takes, its exit statuses, and what it prints by -j."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from schema import SCHEMAS, answer, validate

from bench import scenario, session
from nodrop import cli
from nodrop.commands import common
from nodrop.errors import NodropError, UnsupportedError

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "results"
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fly",
        "-n blue bench --list",
        "bench teleport",
        "bench tap --pairs 0",
        "bench tap --variants stock,magic",
        "-n blue status -A",
        "why lo --seconds -1",
        "top --interval nan",
        "top --count 0",
        "top --limit -1",
        "disable",
        "disable tun0 --default",
        "-n blue disable --default",
    ],
)
def test_usage_errors(line: str, capsys: Capture) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def raise_(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status"),
    [(NodropError("It broke."), 1), (UnsupportedError("Not here."), 4), (KeyboardInterrupt(), 130)],
)
def test_errors_become_statuses(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(session, "measure", raise_(error))
    assert cli.main(["-q", "bench", "tap"]) == status
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("words", ["bench tap", "demo"])
def test_what_draws_pictures_is_missed_before_a_run(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "measure", raise_(AssertionError("it was measured")))
    monkeypatch.setattr(common, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError) as caught:
        cli.main(["-q", *words.split()])
    assert caught.value.name == "matplotlib"  # nodrop.start names the package


def test_options_before_and_after(capsys: Capture) -> None:
    for line in ("-j bench --list", "bench -j --list", "bench --list --json"):
        assert cli.main(line.split()) == 0
        assert set(json.loads(capsys.readouterr().out)["scenarios"]) == set(scenario.known())
    words = ["--color", "never", "-q", "bench", "tap", "-j"]
    arguments = cli.parser(cli.named(words)).parse_args(words)
    assert (arguments.color, arguments.quiet, arguments.json) == ("never", True, True)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Measurements take what was measured before."""

    def measure(_scenarios: Any, _variants: Any, out: Path, _progress: Any) -> None:
        shutil.copytree(RESULTS / "tap", out)

    monkeypatch.setattr(session, "measure", measure)
    monkeypatch.setattr("bench.report.plot.svg", lambda *_: "")
    return tmp_path / "out"


def test_bench_and_demo(measured: Path, capsys: Capture) -> None:
    assert answer(capsys, "bench", "tap", "--out", f"{measured}/1")["scenario"] == "tap"
    assert answer(capsys, "demo", "--out", f"{measured}/2")["command"] == "demo"


def test_report(tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(RESULTS / "guard", tmp_path / "run")
    assert answer(capsys, "report", f"{tmp_path}/run")["command"] == "report"
    assert cli.main(["report", str(tmp_path / "none")]) == 1


def test_schemas(capsys: Capture) -> None:
    """Each is one by itself, and takes neither nothing nor more than what is written down."""
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text())
        Draft202012Validator.check_schema(schema)
        assert '"$ref": "' not in path.read_text().replace('"$ref": "#', "")
        assert not Draft202012Validator(schema).is_valid({}), path.name
    found = answer(capsys, "bench", "--list")
    for more in ({"more": 1}, {"schema": 1}):
        with pytest.raises(ValidationError):
            validate("bench", {**found, **more})
