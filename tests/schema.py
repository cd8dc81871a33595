# SPDX-License-Identifier: GPL-2.0-only
"""What ``-j`` prints, checked against the schema of its command (nodrop/schemas)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

if TYPE_CHECKING:  # guests have none
    import pytest

SCHEMAS = Path(__file__).resolve().parents[1] / "nodrop/schemas"


def validate(command: str, found: dict[str, Any]) -> None:
    """Fail unless the object is what the command's schema says, down to its last key.

    Raises:
        jsonschema.ValidationError: it is not.
        FileNotFoundError: the command has no schema.
    """
    schema = json.loads((SCHEMAS / f"{command}.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(found)


def answer(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    """Run a command by -j; return the object that it prints, as its schema has it."""
    from nodrop import cli
    from nodrop.commands import common

    capsys.readouterr()
    assert cli.main(["-q", "-j", *words]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == common.SCHEMA
    validate(found["command"].replace(" ", "-"), found)
    return found
