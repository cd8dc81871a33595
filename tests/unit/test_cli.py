# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop import cli
from nodrop.bench import scenario, session
from nodrop.commands import common
from nodrop.errors import NodropError, UnsupportedError


def test_list_names_the_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == [*scenario.known(), "tunnel"]
    assert {"tap", "nullvpn", "vpn-rtt"} <= set(names)


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-j", "bench", "--list"]) == 0
    assert "tap" in json.loads(capsys.readouterr().out)["scenarios"]


def test_unknown_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "teleport"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no scenario called 'teleport'" in err
    assert f"Known scenarios: {', '.join(scenario.known())}." in err


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
        ["-x", "report"],
        ["--col", "never", "bench", "--list"],
        ["--color", "blue", "bench", "--list"],
        ["bench", "--list", "--color", "blue"],
        ["-n", "blue", "bench", "--list"],
        ["bench", "--list", "-n", "blue"],
    ],
)
def test_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nodrop: ")
    assert len(err.splitlines()) == 2


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

    monkeypatch.setattr(session, "measure", fail)
    assert cli.main(["-q", "bench", "tap"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"nodrop: {error.message}")


@pytest.mark.parametrize("words", [["bench", "tap"], ["demo"]])
def test_what_draws_pictures_is_missed_before_a_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr(session, "measure", measure)
    monkeypatch.setattr(common, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError) as caught:
        cli.main(["-q", *words])
    assert caught.value.name == "matplotlib"  # nodrop.start names the package


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "measure", interrupt)
    assert cli.main(["-q", "bench", "tap"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["-j", "bench", "--list"], ["bench", "-j", "--list"], ["bench", "--list", "--json"]],
)
def test_options_before_and_after(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["command"]) == (1, "bench")


def test_an_option_before_is_kept() -> None:
    words = ["--color", "never", "-q", "bench", "tap", "-j"]
    arguments = cli.parser(cli.named(words)).parse_args(words)
    assert (arguments.color, arguments.quiet, arguments.json) == ("never", True, True)


def test_what_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reprot", "somewhere"]) == 2
    assert "Did you mean 'report'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", *(command.name for command in cli.COMMANDS)])
def test_help_fits_on_a_screen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"] if name else ["--help"])
    assert caught.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_help_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f" {command.name} " in shown
        assert command.summary in shown


def test_modules_have_the_commands_that_the_table_says() -> None:
    for command in cli.COMMANDS:
        words = [command.name, "--help"]
        with pytest.raises(SystemExit):
            cli.parser(command).parse_args(words)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    version = (Path(__file__).parents[2] / "kmod" / "VERSION").read_text()
    assert capsys.readouterr().out == f"nodrop {version}"
