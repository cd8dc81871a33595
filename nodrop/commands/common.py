# SPDX-License-Identifier: GPL-2.0-only
"""What several commands share: argument types, the end of a run, its place."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.guest.plan import Variant
from nodrop.errors import NodropError

if TYPE_CHECKING:
    from bench.report.files import RunDirectory
    from nodrop.progress import Progress

_SURROGATE = re.compile(r"\\udc([89a-f][0-9a-f])")
SCHEMA = 2
"""Number of the form that ``-j`` prints; docs/json.md says when it changes."""


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
    """Return what parses a time within bounds, for argparse."""

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


def variant_list(text: str) -> tuple[Variant, ...]:
    """Parse ``stock,nodrop``, for argparse; keeps the order of the known ones."""
    words = text.split(",")
    unknown = sorted(set(words) - {str(variant) for variant in Variant})
    if unknown:
        known = ", ".join(Variant)
        raise argparse.ArgumentTypeError(f"unknown driver {unknown[0]}; known: {known}")
    return tuple(variant for variant in Variant if str(variant) in words)


def default_out(name: str) -> Path:
    """Return ``out/NAME-TIME`` below the current directory."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("out") / f"{name}-{stamp}"


def progress(arguments: argparse.Namespace) -> Progress:
    """Return what shows the steps of a long command."""
    from nodrop.progress import Progress

    return Progress(quiet=arguments.quiet, color=arguments.color)


def need_pictures() -> None:
    """Look for what draws pictures before a run, not after it.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    name = "matplotlib"
    if find_spec(name) is None:
        raise ModuleNotFoundError(name=name)


def write_report(path: Path) -> tuple[RunDirectory, Mapping[str, Any]]:
    """Make table, picture and page of a run's directory from its raw data.

    Raises:
        NodropError: the directory is not that of a run, or cannot be written.
    """
    from bench.report import files, page, plot, summary, table

    directory = files.load(path)
    summaries = summary.summarise(directory)
    try:
        for part in (table, plot, page):
            part.write(directory, summaries)
    except OSError as error:
        raise NodropError(f"Cannot write the report to {path}: {error.strerror}.") from error
    return directory, summaries


def print_json(command: str, data: Mapping[str, Any], *, compact: bool = False) -> None:
    """Print one JSON object on stdout.

    Args:
        command: its name; the object says so.
        data: all else; see docs/json.md for the names of keys.
        compact: in one line, for commands that print an object again and again.
    """
    whole = {"schema": SCHEMA, "command": command, **data}
    text = json.dumps(whole, indent=None if compact else 2)
    # Bytes of names that are no UTF-8, which JSON cannot have: as \xff, in readable form.
    print(_SURROGATE.sub(r"\\\\x\1", text), flush=compact)


def print_table(
    arguments: argparse.Namespace, directory: RunDirectory, summaries: Mapping[str, Any]
) -> None:
    """Print the table on stdout."""
    from bench.report import table
    from nodrop import screen

    below = table.note(directory, summaries)
    table.print_to(screen.console(arguments), table.sections(directory, summaries), below)


def check(directory: RunDirectory) -> Sequence[str]:
    """Return what is wrong with a run's result, in sentences."""
    from bench.report import summary

    wrong = []
    if lost := summary.lost_by_nodrop(directory):
        wrong.append(f"nodrop lost {lost} packets that a qdisc could have held.")
    if runs := summary.unaccounted(directory):
        first = runs[0]
        wrong.append(
            f"In {len(runs)} runs packets are not accounted for, first in "
            f"{first.scenario} {first.case} {first.variant} pair {first.pair}: "
            f"{first.metrics['unaccounted']:.0f} packets."
        )
    return wrong
