# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab bench``: one scenario, all drivers, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import scenario
from bench.commands import shared
from lab.guest.variant import Variant
from nodrop.commands.common import positive_int, print_json, progress, seconds
from nodrop.errors import UsageError


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "bench",
        description="Measure a scenario with each driver in one kernel, paired and "
        "interleaved. Prints a table, or with -j one JSON object.",
    )
    parser.add_argument(
        "scenario",
        nargs="?",
        metavar="SCENARIO",
        help="its name; 'nodrop-lab list' has them",
    )
    parser.add_argument(
        "--pairs", type=positive_int, metavar="N", help="runs of each driver and case"
    )
    parser.add_argument("--seconds", type=seconds, metavar="S", help="measured window of a run")
    parser.add_argument(
        "--variants",
        type=shared.variant_list,
        metavar="DRIVERS",
        help="drivers to compare, such as stock,nodrop (default: all)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="place for the results (out/SCENARIO-TIME)"
    )
    parser.add_argument(
        "--continue",
        type=Path,
        metavar="DIR",
        dest="again",
        help="make the runs that an interrupted command did not make",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.again:
        _alone(arguments)
    elif not arguments.scenario:
        raise UsageError("Which scenario?", f"Known scenarios: {', '.join(scenario.known())}.")
    from bench import session

    out: Path = arguments.again
    with progress(arguments) as steps:
        if out:
            session.go_on(out, steps)
        else:
            name, length = arguments.scenario, (arguments.pairs, arguments.seconds)
            chosen = scenario.load(name).with_length(*length)
            out = arguments.out or shared.default_out(name)
            session.measure([chosen], arguments.variants or tuple(Variant), out, steps)
    directory, summaries = shared.write_report(out)
    if arguments.json:
        print_json("bench", next(iter(summaries.values())))
    else:
        shared.print_table(arguments, directory, summaries)
        print(f"Data, table, picture and page (report.html): {out}")
    return shared.check(directory)


def _alone(arguments: argparse.Namespace) -> None:
    """Check that nothing is asked for that the interrupted command has settled.

    Raises:
        UsageError: something is.
    """
    others = ("scenario", "pairs", "seconds", "variants", "out")
    if any(getattr(arguments, name) for name in others):
        raise UsageError(
            "With --continue the interrupted command has settled all else.",
            "Give only the directory: nodrop-lab bench --continue DIR",
        )
