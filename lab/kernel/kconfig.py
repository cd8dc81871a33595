# SPDX-License-Identifier: GPL-2.0-only
"""Kernel flavours, and configurations in the syntax of Kconfig."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodrop.errors import NodropError, UsageError

TABLE = tomllib.loads(Path(__file__).with_name("flavours.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Flavour:
    """A row of flavours.toml, which explains the fields."""

    fragments: list[str]
    patches: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    ipimask: bool = True


FLAVOURS = {name: Flavour(**row) for name, row in TABLE["flavours"].items()}

_SET = re.compile(r'^CONFIG_(\w+)=("[^"]*"|\S+)\s*(?:#\s*(.*))?$')
_UNSET = re.compile(r"^# CONFIG_(\w+) is not set\s*(?:#\s*(.*))?$")


def parse(text: str) -> dict[str, str]:
    """Return symbol -> value of a fragment or of a ``.config``; unset symbols are ``n``.

    Raises:
        ValueError: a line is neither an assignment nor a comment.
    """
    values: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            values[match[1]] = match[2]
        elif match := _UNSET.match(line):
            values[match[1]] = "n"
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"not a configuration line: {line!r}")
    return values


def fragments(*names: str) -> str:
    return "".join(TABLE["fragments"][name] for name in names)


def flavour_of(name: str) -> Flavour:
    """Return a flavour.

    Raises:
        UsageError: there is no such flavour.
    """
    if name not in FLAVOURS:
        raise UsageError(
            f"There is no kernel flavour {name!r}.", f"Use one of: {', '.join(FLAVOURS)}."
        )
    return FLAVOURS[name]


def render(values: Mapping[str, str]) -> str:
    """Return a file in Kconfig's syntax, which has no comments after a value."""
    return "".join(
        f"# CONFIG_{name} is not set\n" if value == "n" else f"CONFIG_{name}={value}\n"
        for name, value in values.items()
    )


def check(wanted: Mapping[str, str], config: str) -> None:
    """Check that a finished ``.config`` has every wanted value.

    Raises:
        NodropError: Kconfig dropped or changed values; the hint lists them.
    """
    got = parse(config)
    wrong = [
        f"CONFIG_{name}: wanted {value}, got {got.get(name, 'n')}"
        for name, value in wanted.items()
        if got.get(name, "n") != value
    ]
    if wrong:
        raise NodropError(
            f"Kconfig changed {len(wrong)} of {len(wanted)} values of the kernel's configuration.",
            "A dependency is missing in lab/kernel/flavours.toml:\n" + "\n".join(wrong),
        )
