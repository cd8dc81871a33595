# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop report``: summary, table and picture again, from a run's raw data alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from nodrop.commands import common
from nodrop.report.files import PLOT_NAMES, SUMMARY_NAME, TABLE_NAME


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "report",
        help="make table and picture of a run again",
        description="Make summary, table and picture again from the raw data of a run, "
        "finished or interrupted.",
    )
    parser.add_argument("directory", type=Path, help="what 'nodrop bench' or 'demo' made")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    directory, summaries = common.write_report(arguments.directory)
    if arguments.json:
        common.print_json({"schema": 1, "scenarios": summaries})
        return 0
    common.print_table(directory, summaries)
    plots = [name for name in PLOT_NAMES if (directory.path / name).exists()]
    made = [SUMMARY_NAME, TABLE_NAME, *plots]
    print(f"Made in {arguments.directory}: {', '.join(made)}")
    return 0
