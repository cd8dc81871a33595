# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop bench``: one scenario, all drivers, side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nodrop.bench import scenario
from nodrop.bench.session import measure
from nodrop.commands import common
from nodrop.errors import FAILED, UsageError
from nodrop.guest.plan import Variant
from nodrop.progress import Progress


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "bench",
        help="measure a scenario with stock, upstream's flag and nodrop",
        description="Measure a scenario with each driver in one kernel, paired and "
        "interleaved. Prints a table, or with -j one JSON object.",
    )
    parser.add_argument("scenario", nargs="?", help="its name; --list names them")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--pairs", type=common.positive_int, help="runs of each driver and case")
    parser.add_argument("--seconds", type=common.seconds, help="measured window of a run")
    parser.add_argument(
        "--variants",
        type=common.variant_list,
        default=tuple(Variant),
        help="drivers to compare, such as stock,nodrop (default: all)",
    )
    parser.add_argument("--out", type=Path, help="directory for the results (out/SCENARIO-TIME)")
    parser.set_defaults(run=run)


def list_scenarios(*, as_json: bool) -> int:
    """Print the scenarios with their titles."""
    found = {name: scenario.load(name) for name in scenario.known()}
    if as_json:
        listed = {name: {"title": entry.title} for name, entry in found.items()}
        common.print_json({"schema": 1, "scenarios": listed})
        return 0
    width = max(map(len, found), default=0)
    for name, entry in found.items():
        print(f"{name:{width}}  {entry.title}")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.list:
        return list_scenarios(as_json=arguments.json)
    if not arguments.scenario:
        raise UsageError("Which scenario?", f"Known scenarios: {', '.join(scenario.known())}.")
    chosen = scenario.load(arguments.scenario).with_length(arguments.pairs, arguments.seconds)
    out = arguments.out or common.default_out(chosen.name)
    with Progress(quiet=arguments.quiet) as progress:
        measure([chosen], arguments.variants, out, progress)
    directory, summaries = common.write_report(out)
    if arguments.json:
        common.print_json(summaries[chosen.name])
    else:
        common.print_table(directory, summaries)
        print(f"Data, table and picture: {out}")
    wrong = common.check(directory)
    for sentence in wrong:
        print(f"nodrop: {sentence}", file=sys.stderr)
    return FAILED if wrong else 0
