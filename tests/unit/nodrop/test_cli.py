# SPDX-License-Identifier: GPL-2.0-only
"""The command line: arguments, exit statuses, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator, ValidationError
from schema import SCHEMAS, answer, validate

from bench import cli as lab
from nodrop import cli
from nodrop.commands import where
from nodrop.errors import NodropError, UnsupportedError

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
    monkeypatch.setattr(where, "read", raise_(error))
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
    found = answer(capsys, "list", main=lab.main)
    for more in ({"more": 1}, {"schema": 1}):
        with pytest.raises(ValidationError):
            validate("list", {**found, **more})
