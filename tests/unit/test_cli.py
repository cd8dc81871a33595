# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop import cli
from nodrop.commands import bench
from nodrop.errors import NodropError, UnsupportedError


def test_list_names_the_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "guard",
        "multiflow",
        "nullvpn",
        "oneflow",
        "readers",
        "tap",
        "tapqdisc",
        "udp",
        "vhost",
    ]


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-j", "bench", "--list"]) == 0
    assert "tap" in json.loads(capsys.readouterr().out)["scenarios"]


def test_unknown_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "teleport"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no scenario called 'teleport'" in err
    assert "guard, multiflow, nullvpn, oneflow, readers, tap, tapqdisc, udp, vhost" in err


def test_no_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench"]) == 2
    assert "Known scenarios" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["bench", "tap", "--pairs", "0"],
        ["bench", "tap", "--pairs", "many"],
        ["bench", "tap", "--seconds", "0"],
        ["bench", "tap", "--seconds", "nan"],
        ["bench", "tap", "--variants", "stock,magic"],
        ["report"],
    ],
)
def test_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


def test_report_on_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path / "none")]) == 1
    assert "not the directory of a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [(NodropError("It broke.", "Mend it."), 1), (UnsupportedError("Not here."), 4)],
)
def test_errors_become_sentences_and_statuses(
    error: NodropError,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(bench, "measure", fail)
    assert cli.main(["-q", "bench", "tap"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"nodrop: {error.message}")


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", interrupt)
    assert cli.main(["-q", "bench", "tap"]) == 130
    assert "interrupted" in capsys.readouterr().err
