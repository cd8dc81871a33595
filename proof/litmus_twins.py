# SPDX-License-Identifier: GPL-2.0-only
"""Twins of the litmus tests: each leaves something out, and must be able to fail."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

LITMUS = {path.stem: path for path in sorted((Path(__file__).parent / "litmus").glob("*.litmus"))}
"""The litmus tests: name -> file."""


class Twin(NamedTuple):
    """One change to a litmus test.

    Attributes:
        test: the test.
        name: of the changed test.
        why: it can fail.
        edits: text that occurs exactly once in the test's code, and its replacement.
    """

    test: str
    name: str
    why: str
    edits: list[tuple[str, str]]


_TABLE = tomllib.loads((Path(__file__).parent / "litmus/twins.toml").read_text(encoding="utf-8"))
TWINS = tuple(
    Twin(one["test"], one["name"], one["why"], [(e["old"], e["new"]) for e in one["edits"]])
    for one in _TABLE["twin"]
)


def code(test: str) -> str:
    """Return what follows the comment of a litmus test."""
    return LITMUS[test].read_text(encoding="utf-8").partition("*)\n")[2]


def twin_text(twin: Twin) -> str:
    """Return the litmus test that a twin is."""
    text = code(twin.test)
    for old, new in twin.edits:
        assert text.count(old) == 1, f"{twin.name}: {old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return f"C {twin.name}\n{text}"
