# SPDX-License-Identifier: GPL-2.0-only
"""What several commands share: argument types, the end of a run, its place."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from nodrop.errors import NodropError
from nodrop.guest.plan import Variant
from nodrop.report import files, summary, table

MIN_WIDTH = 140
"""Columns the table needs; a narrower pipe or terminal wraps its own lines."""


def positive_int(text: str) -> int:
    """Parse a whole number of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from error
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def seconds(text: str) -> float:
    """Parse a time of 0.05 s to 600 s, for argparse."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds") from error
    if not 0.05 <= value <= 600:
        raise argparse.ArgumentTypeError("must be from 0.05 to 600 seconds")
    return value


def variant_list(text: str) -> tuple[Variant, ...]:
    """Parse ``stock,nodrop``, for argparse; keeps the order of the known ones."""
    words = text.split(",")
    unknown = sorted(set(words) - {str(variant) for variant in Variant})
    if unknown:
        known = ", ".join(Variant)
        raise argparse.ArgumentTypeError(f"unknown driver {unknown[0]}; known: {known}")
    return tuple(variant for variant in Variant if str(variant) in words)


def _draw(directory: files.RunDirectory, summaries: dict[str, Any]) -> None:
    """Draw the picture; what draws it is loaded only now, since few commands need it."""
    from nodrop.report import plot

    plot.write(directory, summaries)


def default_out(name: str) -> Path:
    """Return ``out/NAME-TIME`` below the current directory."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("out") / f"{name}-{stamp}"


def write_report(path: Path) -> tuple[files.RunDirectory, Mapping[str, Any]]:
    """Make summary, table and picture of a run's directory from its raw data.

    Raises:
        NodropError: the directory is not that of a run, or cannot be written.
    """
    directory = files.load(path)
    summaries = summary.summarise(directory)
    try:
        summary.write(directory, summaries)
        table.write(directory, summaries)
        _draw(directory, summaries)
    except OSError as error:
        raise NodropError(f"Cannot write the report to {path}: {error.strerror}.") from error
    return directory, summaries


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(data, indent=2))


def print_table(directory: files.RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Print the table on stdout."""
    console = Console()
    if console.width < MIN_WIDTH:
        console = Console(width=MIN_WIDTH, soft_wrap=True)
    table.print_to(console, table.sections(directory, summaries), table.caption(summaries))


def check(directory: files.RunDirectory) -> Sequence[str]:
    """Return what is wrong with a run's result, in sentences."""
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
