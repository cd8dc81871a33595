# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab bench``: one scenario with all drivers, interleaved."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import scenario
from bench.commands import shared
from lab.kernel import other
from lab.variant import COMPARED, Variant
from nodrop.commands.common import positive_int, print_json, progress, seconds
from nodrop.errors import UsageError


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "bench",
        description="Measure a scenario with all drivers in one kernel, paired and "
        "interleaved. Prints a table, or with -j one JSON object.",
    )
    parser.add_argument(
        "scenario",
        nargs="?",
        metavar="SCENARIO",
        help="a name from 'nodrop-lab list'",
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
        "--against",
        metavar="COMMIT",
        help="compare with another commit's modules, too: the driver 'old'",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="results directory (out/SCENARIO-TIME)"
    )
    parser.add_argument(
        "--continue",
        type=Path,
        metavar="DIR",
        dest="interrupted",
        help="complete an interrupted run",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.interrupted:
        _refuse_others(arguments)
    elif not arguments.scenario:
        raise UsageError("Which scenario?", f"Known scenarios: {', '.join(scenario.known())}.")
    from bench import session

    out: Path = arguments.interrupted
    with progress(arguments) as steps:
        if out:
            session.continue_run(out, steps)
        else:
            name, length = arguments.scenario, (arguments.pairs, arguments.seconds)
            chosen = scenario.load(name).with_length(*length)
            out = arguments.out or shared.default_out(name)
            variants = arguments.variants or COMPARED
            old = other.resolve(arguments.against) if arguments.against else ""
            variants += (Variant.OLD,) * bool(old)
            session.measure([chosen], variants, out, steps, old=old)
    directory, summaries = shared.write_report(out)
    if arguments.json:
        print_json("bench", next(iter(summaries.values())))
    else:
        shared.print_table(arguments, directory, summaries)
        print(f"Data, table, plot and page (report.html): {out}")
    return shared.check(directory)


def _refuse_others(arguments: argparse.Namespace) -> None:
    """Refuse other arguments with --continue.

    Raises:
        UsageError: there are some.
    """
    others = ("scenario", "pairs", "seconds", "variants", "against", "out")
    if any(getattr(arguments, name) for name in others):
        raise UsageError(
            "With --continue, all other settings are those of the interrupted run.",
            "Give only the directory: nodrop-lab bench --continue DIR",
        )
