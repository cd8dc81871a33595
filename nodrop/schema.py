# SPDX-License-Identifier: GPL-2.0-only
"""The JSON Schemas of the commands' output: ``python3 -m nodrop.schema DIR`` writes them.

``schemas.json`` leaves out what holds for all: an object has all its properties and no others,
numbers are not negative, and each output has ``schema`` and ``command``. ``allOf`` stands for the
properties of other objects.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

from nodrop.start import SCHEMA

Schema = dict[str, Any]


def schemas() -> dict[str, Schema]:
    """Return command -> its schema; "error" is that of errors."""
    source: dict[str, Schema] = json.loads(pkgutil.get_data("nodrop", "schemas.json") or b"")
    shared = source.pop("$defs")
    return {name: _complete(name, schema, shared) for name, schema in source.items()}


def _complete(name: str, schema: Schema, shared: dict[str, Schema]) -> Schema:
    head: Schema = {"schema": {"const": SCHEMA}}
    if name != "error":
        head["command"] = {"const": name}
    made = _expanded({**schema, "properties": {**head, **schema["properties"]}}, shared)
    used: dict[str, Schema] = {}
    todo = [made]
    while todo:
        for key in re.findall(r'"#/\$defs/(\w+)"', json.dumps(todo.pop())):
            if key not in used:
                used[key] = _expanded(shared[key], shared)
                todo.append(used[key])
    made["$defs"] = used
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": f"nodrop -j {name}", **made}


def _expanded(schema: Schema, shared: dict[str, Schema]) -> Schema:
    """Return a schema with what ``schemas.json`` leaves out."""
    made = {**schema}
    for part in made.pop("allOf", ()):
        below = _expanded(shared[part["$ref"].rpartition("/")[2]], shared)
        made["properties"] = {**below["properties"], **made["properties"]}
    if "properties" in made:
        inner = made["properties"].items()
        made["properties"] = {key: _expanded(value, shared) for key, value in inner}
        made = {"type": "object", "required": [*made["properties"]], **made}
        made.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _expanded(made[key], shared)
    # The type is a word, or a list of words.
    if any(word in made.get("type", ()) for word in ("integer", "number")):
        made.setdefault("minimum", 0)
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
