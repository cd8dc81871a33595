# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab report``: redo table, plot and page from the raw data."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.commands import shared
from nodrop.commands.common import print_json


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        description="Redo table, plot and page (report.html) from the raw data of a run, complete "
        "or interrupted.",
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="results of 'nodrop-lab bench' or 'demo'"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from bench.rundir import PAGE_NAME

    path = arguments.directory
    directory, summaries = shared.write_report(path)
    if arguments.json:
        print_json("report", {"page": str(path / PAGE_NAME), "scenarios": summaries})
    else:
        shared.print_table(arguments, directory, summaries)
        print(f"Table, plot and page (report.html): {path}")
    return 0
