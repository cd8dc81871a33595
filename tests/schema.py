# SPDX-License-Identifier: GPL-2.0-only
"""Checks the JSON output of a command against its schema (nodrop.schema, bench/schemas)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from nodrop import cli, start
from nodrop.schema import schemas

if TYPE_CHECKING:  # not installed in guests
    import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SCHEMAS = {
    **schemas(),
    **{
        path.stem: json.loads(path.read_text())
        for path in (REPOSITORY / "bench/schemas").glob("*.json")
    },
}
SCHEMAS["demo"] = SCHEMAS["bench"]


def validate(command: str, found: dict[str, Any]) -> None:
    """Check an object against a command's schema.

    Raises:
        jsonschema.ValidationError: it does not conform.
        KeyError: the command has no schema.
    """
    Draft202012Validator.check_schema(SCHEMAS[command])
    Draft202012Validator(SCHEMAS[command]).validate(found)


def answer(
    capsys: pytest.CaptureFixture[str],
    *words: str,
    status: int = 0,
    main: Callable[[Sequence[str]], int] = cli.main,
) -> dict[str, Any]:
    """Run a command with -j; return its JSON output, checked against its schema."""
    capsys.readouterr()
    assert main(["-q", "-j", *words]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == start.SCHEMA
    # nodrop-lab's report has the summaries of bench.
    lab = main is not cli.main and found["command"] == "report"
    validate("bench" if lab else found["command"], found)
    return found
