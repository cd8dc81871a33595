# SPDX-License-Identifier: GPL-2.0-only
"""The command line: arguments, exit statuses, JSON, completion, names in terminals and shells."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from rich.console import Console
from schema import SCHEMAS, answer, validate

from bench import cli as lab
from nodrop import cli, complete, proc, screen
from nodrop.commands import common
from nodrop.errors import NodropError, UnsupportedError
from nodrop.host import netns
from nodrop.progress import Progress
from nodrop.screen import Column, Screen, clean_lines

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fly",
        "-n blue install",
        "-n blue status -A",
        "drops lo --seconds -1",
        "top --interval nan",
        "top --count 0",
        "top --limit -1",
        "set",
        "-n blue set --default backpressure on",
    ],
)
def test_usage_errors(line: str, capsys: Capture) -> None:
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def raise_(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status"),
    [(NodropError("It broke."), 1), (UnsupportedError("Not here."), 4), (KeyboardInterrupt(), 130)],
)
def test_errors_become_statuses(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(common, "read", raise_(error))
    assert cli.main(["-q", "status"]) == status
    assert capsys.readouterr().out == ""


def test_options_before_and_after() -> None:
    for line in ("-j -q --color never top", "top --color never -j -q", "-j top -q --color=never"):
        words = line.split()
        arguments = cli.parser(cli.named(words)).parse_args(words)
        assert (arguments.color, arguments.quiet, arguments.json) == ("never", True, True)


def test_schemas(capsys: Capture) -> None:
    """Each schema is self-contained, and refuses an empty object and unknown keys."""
    for path in SCHEMAS.values():
        schema = json.loads(path.read_text())
        Draft202012Validator.check_schema(schema)
        assert '"$ref": "' not in path.read_text().replace('"$ref": "#', "")
        assert not Draft202012Validator(schema).is_valid({}), path.name
    result = answer(capsys, "list", main=lab.main)
    for more in ({"more": 1}, {"schema": 1}):
        with pytest.raises(ValidationError):
            validate("list", {**result, **more})


LINKS = [
    {"ifname": "lo"},
    {"ifname": "tun0", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tun"}}},
    {"ifname": "tap1", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "macv", "linkinfo": {"info_kind": "macvtap", "info_data": {"mode": "vepa"}}},
    {"ifname": "t\udcff\x1b", "linkinfo": {"info_kind": "tun", "info_data": {"type": "tap"}}},
    {"ifname": "veth0", "linkinfo": {"info_kind": "veth"}},
]


def words(*typed: str) -> list[str]:
    return [word for word, _ in complete.complete(typed)]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("", [one.name for one in cli.NODROP.commands]),
        ("to", ["top"]),
        ("-j --color never to", ["top"]),
        ("fly ", []),
        ("top --int", ["--interval"]),
        ("top -- --int", []),
        ("--color ", ["auto", "always", "never"]),
        ("top --color=ne", ["--color=never"]),
        ("top --interval ", []),
        ("install --source ", [":dirs"]),
        ("set tun0 b", ["backpressure"]),
        ("-n blue set tun0 backpressure ", ["on", "off", "default"]),
        ("set --now tun0 backpressure ", ["on", "off"]),
        ("set tun0 backpressure on ", []),
        ("set --default ", ["backpressure", "stall-ms"]),
    ],
)
def test_words(typed: str, wanted: list[str]) -> None:
    assert words(*typed.split(" ")) == wanted


def test_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "NAMED", tmp_path)
    (tmp_path / "blue").touch()
    assert words("-n", "") == ["blue"]
    assert words("--netns", "re") == []


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def ask(*argv: str, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append([*argv])
        printed = json.dumps(LINKS, ensure_ascii=False).replace("\\u001b", "\x1b")
        return subprocess.CompletedProcess(argv, 0, printed)

    monkeypatch.setattr(proc, "ask", ask)
    assert list(complete.devices(None)) == [
        *(("tun0", "tun"), ("tap1", "tap"), ("macv", "macvtap"), ("t\udcff\x1b", "tap"))
    ]
    assert words("-n", "blue", "status", "tu") == ["tun0"]
    assert words("status", "tun0", "--netns=red", "ta") == ["tap1"]
    assert [argv[1:-3] for argv in asked] == [[], ["-n", "blue"], ["-n", "red"]]


@pytest.mark.parametrize("failure", [NodropError("no ip"), ValueError("no JSON")])
def test_unreadable_devices(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(proc, "ask", ask)
    assert list(complete.devices(None)) == []


def test_output_for_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(cli.NODROP.commands)
    for typed, printed in (
        ("bash top --color = ne", ["never"]),
        ("bash top --color =", ["auto", "always", "never"]),
        ("zsh top --color=ne", ["--color=never"]),
        ("bash top --int", ["--interval"]),
    ):
        assert complete.main(typed.split()) == 0
        assert capsys.readouterr().out.splitlines() == printed
    assert complete.main(["fish", "top", "--int"]) == 0
    assert capsys.readouterr().out.startswith("--interval\t")


def test_width_of_wide_characters() -> None:
    assert [screen.width(text) for text in ("tun", "隧道", "e\u0301")] == [3, 4, 1]


def test_terminal_escapes_are_removed() -> None:
    assert screen.clean("a\033[31mb\nc\udc80") == "a?[31mb c?"
    assert clean_lines("a\x1b]0;x\x07\nb\x9b31m") == "a?]0;x?\nb?31m"
    text = io.StringIO()
    Screen(text, False, None).table([Column("device")], [["tap\033]0;x\a"]])
    assert text.getvalue().replace("\n", "").isprintable()


def test_shell_quoting() -> None:
    for name in ("a;id", "$(id)", "it's", "a\\b", "e\x1b[31mx", "b\udcff\udcfez", "-n", "ü", "*"):
        line = f"printf %s {proc.join(name)}"
        assert line.isprintable()
        done = subprocess.run(["bash", "-c", os.fsencode(line)], capture_output=True, check=True)
        assert done.stdout == os.fsencode(name)


def made(text: io.StringIO, *, terminal: bool = False, quiet: bool = False) -> Progress:
    console = Console(file=text, force_terminal=terminal, width=200)
    return Progress(quiet=quiet, console=console)


def test_step_prints_two_lines() -> None:
    text = io.StringIO()
    with made(text) as progress, progress.step("Build it"):
        assert len(text.getvalue().splitlines()) == 1
    with pytest.raises(ValueError, match="x"), made(text) as progress, progress.step("Build it"):
        raise ValueError("x")
    assert len(text.getvalue().splitlines()) == 4


@pytest.mark.parametrize("quiet", [True, False])
def test_on_a_terminal(quiet: bool) -> None:
    text = io.StringIO()
    title = "Build [/it]"  # a name may look like rich's markup
    with made(text, terminal=True, quiet=quiet) as progress, progress.step(title, 2) as step:
        step.update("[/half]", done=1)
    assert (title in text.getvalue()) is not quiet
