# SPDX-License-Identifier: GPL-2.0-only
"""Shared by commands: argument types, progress, JSON output."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodrop.columns import clean_lines
from nodrop.errors import NodropError

if TYPE_CHECKING:
    from nodrop.progress import Progress

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_MANY = 100
"""Devices from which on JSON is not indented, which would take ten times as long."""
SCHEMA = 3
"""Version of the JSON output; docs/guide.md describes when it changes."""


def positive_int(text: str) -> int:
    """Parse a whole number of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from error
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def seconds_from(least: float, most: float, *, or_zero: bool = False) -> Callable[[str], float]:
    """Return a parser of seconds within bounds, for argparse."""

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds") from error
        if not (least <= value <= most or (or_zero and value == 0)):
            raise argparse.ArgumentTypeError(
                f"must be {'0, or ' if or_zero else ''}from {least:g} to {most:g} seconds"
            )
        return value

    return seconds


seconds = seconds_from(0.05, 600)


def progress(arguments: argparse.Namespace) -> Progress:
    """Return the progress display of a long command."""
    from nodrop.progress import Progress

    return Progress(quiet=arguments.quiet, color=arguments.color)


def print_json(command: str, data: Mapping[str, Any], *, compact: bool = False) -> None:
    """Print one JSON object on stdout.

    Args:
        command: the value of "command".
        data: the other keys; docs/guide.md explains their names.
        compact: print one line, for commands that print several objects.
    """
    whole = {"schema": SCHEMA, "command": command, **data}
    indent = None if compact or len(data.get("devices", ())) >= _MANY else 2
    text = json.dumps(whole, indent=indent, ensure_ascii=False)
    print(text if text.isascii() else _NOT_ASCII.sub(_escaped, text), flush=compact)


def _escaped(match: re.Match[str]) -> str:
    one = match[0]
    if "\udc80" <= one <= "\udcff":
        # A byte of a name that is not UTF-8 cannot be in JSON: print it as \xff.
        return rf"\\x{ord(one) - 0xDC00:02x}"
    return json.dumps(one)[1:-1]


def report(
    arguments: argparse.Namespace,
    command: str,
    actions: Sequence[str],
    sentences: Sequence[str],
    **more: Any,
) -> int:
    """Print what was done or would be done, as JSON with more keys; return the exit status."""
    if arguments.json:
        data = {"dry_run": arguments.dry_run, "actions": actions, "sentences": sentences}
        print_json(command, {**data, **more})
    else:
        print(clean_lines("\n".join([*(actions if arguments.dry_run else ()), *sentences])))
    return 0


def require_root(what: str) -> None:
    """Raise NodropError unless this process is root.

    Args:
        what: what only root can do.
    """
    if os.geteuid() != 0:
        raise NodropError(f"Only root can {what}.", "Run this as root.")
