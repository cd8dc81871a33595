# SPDX-License-Identifier: GPL-2.0-only
"""What the commands of ``nodrop-lab`` share: argument types, output directory, report, status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.variant import COMPARED, Variant
from nodrop.errors import FAILED, NodropError

if TYPE_CHECKING:
    from bench.rundir import RunDirectory


def variant_list(text: str) -> tuple[Variant, ...]:
    """Parse ``stock,nodrop``, for argparse; return the drivers in their usual order."""
    names = text.split(",")
    unknown = sorted(set(names) - {str(variant) for variant in COMPARED})
    if unknown:
        known = ", ".join(COMPARED)
        raise argparse.ArgumentTypeError(f"unknown driver {unknown[0]}; known: {known}")
    return tuple(variant for variant in COMPARED if str(variant) in names)


def default_out(name: str) -> Path:
    """Return ``out/NAME-TIME``, relative to the current directory."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("out") / f"{name}-{stamp}"


def write_report(path: Path) -> tuple[RunDirectory, Mapping[str, Any]]:
    """Write table, plot and page of a run from its raw data.

    Raises:
        NodropError: the directory is not that of a run, or cannot be written.
    """
    from bench import rundir
    from bench.report import page, plot, summary, table

    directory = rundir.load(path)
    summaries = summary.summarise(directory)
    try:
        for part in (table, plot, page):
            part.write(directory, summaries)
    except OSError as error:
        raise NodropError(f"Cannot write the report to {path}: {error.strerror}.") from error
    return directory, summaries


def print_table(
    arguments: argparse.Namespace, directory: RunDirectory, summaries: Mapping[str, Any]
) -> None:
    from bench.report import table
    from nodrop import screen

    below = table.note(directory, summaries)
    table.print_to(screen.console(arguments), table.sections(directory, summaries), below)


def check(directory: RunDirectory) -> int:
    """Print what is wrong with a run's results; return the exit status."""
    from bench.report import summary

    wrong = []
    if lost := summary.lost_by_nodrop(directory):
        wrong.append(f"nodrop's driver dropped {lost} packets that a qdisc could have queued.")
    if runs := summary.unaccounted(directory):
        first = runs[0]
        wrong.append(
            f"In {len(runs)} runs the account does not balance, first in "
            f"{first.scenario} {first.case} {first.variant} pair {first.pair}: "
            f"{first.metrics['unaccounted']:.0f} packets."
        )
    for sentence in wrong:
        print(f"nodrop-lab: {sentence}", file=sys.stderr)
    return FAILED if wrong else 0
