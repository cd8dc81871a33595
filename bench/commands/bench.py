# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab bench``: one scenario with all drivers, interleaved."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from bench import scenario
from bench.commands import shared
from bench.scenario import Scenario
from lab.kernel.artifacts import resolve_commit
from lab.roots import kernel_names
from lab.variant import COMPARED, Variant
from nodrop.commands.common import positive_int, print_json, progress, seconds
from nodrop.errors import UsageError


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        description="Measure a scenario with all drivers in one kernel, paired and "
        "interleaved. Prints a table, or with -j one JSON object.",
    )
    parser.add_argument(
        "scenario", nargs="?", metavar="SCENARIO", help="a name from 'nodrop-lab list'"
    )
    parser.add_argument(
        "--pairs", type=positive_int, metavar="N", help="runs of each driver and case"
    )
    parser.add_argument("--seconds", type=seconds, metavar="S", help="measured window of a run")
    parser.add_argument(
        "--case", metavar="TEXT", help="only the cases with this in their names, such as senders=2"
    )
    parser.add_argument(
        "--kernel",
        metavar="K",
        choices=kernel_names(),
        help="Debian's kernel, to count instructions",
    )
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
            chosen = _chosen(arguments)
            out = arguments.out or shared.default_out(chosen.name)
            known = session.available(chosen)
            variants = arguments.variants or tuple(name for name in COMPARED if name in known)
            old = resolve_commit(arguments.against) if arguments.against else ""
            variants += (Variant.OLD,) * bool(old)
            session.measure([chosen], variants, out, steps, old=old)
    directory, summaries = shared.write_report(out)
    if arguments.json:
        print_json("bench", next(iter(summaries.values())))
    else:
        shared.print_table(arguments, directory, summaries)
        print(f"Data, table, plot and page (report.html): {out}")
    return shared.check(directory)


def _chosen(arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with what the arguments change.

    Raises:
        UsageError: an argument does not fit it.
    """
    chosen = scenario.load(arguments.scenario)
    if arguments.seconds and not chosen.seconds:
        raise UsageError(f"A run of {chosen.name} ends after a number of packets, not of seconds.")
    if arguments.kernel and not chosen.is_counted:
        raise UsageError(f"{chosen.name} is measured on a kernel in user mode.")
    chosen = replace(
        chosen.with_length(arguments.pairs, arguments.seconds),
        kernel=arguments.kernel or chosen.kernel,
        only=arguments.case or "",
    )
    if not chosen.cases():
        raise UsageError(f"{chosen.name} has no case with '{arguments.case}' in its name.")
    return chosen


def _refuse_others(arguments: argparse.Namespace) -> None:
    """Refuse other arguments with --continue.

    Raises:
        UsageError: there are some.
    """
    others = ("scenario", "pairs", "seconds", "case", "kernel", "variants", "against", "out")
    if any(getattr(arguments, name) for name in others):
        raise UsageError(
            "With --continue, all other settings are those of the interrupted run.",
            "Give only the directory: nodrop-lab bench --continue DIR",
        )
