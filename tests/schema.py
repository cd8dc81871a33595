# SPDX-License-Identifier: GPL-2.0-only
"""Checks what ``-j`` prints against the schema of its command (nodrop/schemas)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

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
