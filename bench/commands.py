# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks' commands: ``nodrop-lab demo``, ``bench``, ``list``, ``report`` and others."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import scenario
from bench.scenario import Scenario
from lab.commands import refuse_json
from lab.kernel.artifacts import resolve_commit
from lab.roots import kernel_names
from lab.sources import REPOSITORY
from lab.variant import COMPARED, Variant
from nodrop.commands.common import positive_int, print_json, progress, seconds
from nodrop.errors import FAILED, INTERRUPTED, NodropError, UsageError

if TYPE_CHECKING:
    from bench.rundir import RunDirectory

DEMO = (
    ("nullvpn-gso", 6, 0.4, ""),
    ("nullvpn", 3, 0.4, ""),
    ("tap", 4, 0.15, "senders=2,txqueuelen=500"),
)
"""The demo's scenarios: pairs, window in seconds, and case; in total about a minute. A 95 %
interval of a median needs six ratios; with fewer, the table has the range."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _register_demo(commands)
    _register_bench(commands)
    listing = commands.add_parser("list", description="List the scenarios with their titles.")
    listing.set_defaults(run=run_list)
    _register_report(commands)
    figure = commands.add_parser(
        "figure",
        description="Draw one plot of the median latency in several runs. If several have the same "
        "case of a scenario, it shows the last.",
    )
    figure.add_argument("file", type=Path, metavar="FILE", help="the SVG to write")
    figure.add_argument(
        "directories", nargs="+", type=Path, metavar="DIR", help="results of 'nodrop-lab bench'"
    )
    figure.set_defaults(run=run_figure)
    digest = commands.add_parser(
        "digest",
        description="Print the digest by which results name the measured drivers and traffic "
        "programs.",
    )
    digest.add_argument(
        "tree", nargs="?", type=Path, default=REPOSITORY, metavar="TREE", help="another clone"
    )
    digest.set_defaults(run=run_digest)


def _register_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        description="Compare stock, upstream's flag and nodrop in one kernel: latency under load "
        "and goodput of a VPN, with and without offloads, drops and throughput of a TAP. Prints a "
        "table and draws a plot. "
        "Exit status 1 if nodrop's driver dropped a packet that a qdisc could have queued.",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="results directory (out/demo-TIME)")
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> int:
    from bench.rundir import MARKDOWN_NAME, PAGE_NAME, PLOT_NAME
    from bench.session import measure

    chosen = [
        replace(scenario.load(name).with_length(pairs, length), only=only)
        for name, pairs, length, only in DEMO
    ]
    out = arguments.out or default_out("demo")
    with progress(arguments) as steps:
        measure(chosen, COMPARED, out, steps)
    directory, summaries = write_report(out)
    if arguments.json:
        print_json("demo", {"scenarios": summaries})
    else:
        print_table(arguments, directory, summaries)
        print(f"Table:   {out / MARKDOWN_NAME}")
        print(f"Plot:    {out / PLOT_NAME}")
        print(f"Page:    {out / PAGE_NAME}")
        print(f"Redo:    nodrop-lab report {out}")
    return check(directory)


def _register_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        description="Measure a scenario with all drivers in one kernel, paired and "
        "interleaved. Prints a table, or with -j one JSON object (for each scenario of a set).",
    )
    parser.add_argument(
        "scenario", nargs="?", metavar="SCENARIO", help="a name from 'nodrop-lab list'"
    )
    parser.add_argument(
        "--set",
        metavar="SET",
        choices=scenario.sets(),
        help="many scenarios, each into its directory below DIR: short or full. Continues what "
        "DIR holds already; a failure does not stop the others",
    )
    parser.add_argument(
        "--pairs", type=positive_int, metavar="N", help="runs of each driver and case"
    )
    parser.add_argument("--seconds", type=seconds, metavar="S", help="measured window of a run")
    parser.add_argument(
        "--case",
        metavar="WORDS",
        help="only the cases with these parameters, such as senders=2,txqueuelen=5 or payload",
    )
    parser.add_argument(
        "--kernel",
        metavar="K",
        choices=kernel_names(),
        help="Debian's kernel, to count instructions",
    )
    parser.add_argument(
        "--variants",
        type=variant_list,
        metavar="DRIVERS",
        help="drivers to compare, such as stock,nodrop (default: all but series, of tunnels all)",
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
    parser.set_defaults(run=run_bench)


def run_bench(arguments: argparse.Namespace) -> int:
    if arguments.set:
        return _run_set(arguments)
    if arguments.interrupted:
        _refuse_others(arguments, "interrupted")
    elif not arguments.scenario:
        raise UsageError("Which scenario?", f"Known scenarios: {', '.join(scenario.known())}.")
    from bench import session

    out: Path = arguments.interrupted
    with progress(arguments) as steps:
        if out:
            session.continue_run(out, steps)
        else:
            chosen = _chosen(arguments)
            out = arguments.out or default_out(chosen.name)
            variants = arguments.variants or session.compared(chosen)
            old = resolve_commit(arguments.against) if arguments.against else ""
            variants += (Variant.OLD,) * bool(old)
            session.measure([chosen], variants, out, steps, old=old)
    directory, summaries = write_report(out)
    if arguments.json:
        print_json("bench", next(iter(summaries.values())))
    else:
        print_table(arguments, directory, summaries)
        print(f"Data, table, plot and page (report.html): {out}")
    return check(directory)


def _run_set(arguments: argparse.Namespace) -> int:
    """Run the scenarios of a set; return whether all succeeded.

    Raises:
        NodropError: the user interrupted.
    """
    from bench.rundir import META_NAME

    _refuse_others(arguments, "set", "out")
    out = arguments.out or default_out("bench")
    failed = []
    for name, length in scenario.sets()[arguments.set].items():
        given: dict[str, Any] = {"scenario": name, "out": out / name, **length}
        try:
            if (out / name / META_NAME).exists():
                _refuse_unlike(replace(scenario.load(name), **length), out / name)
                given = {"interrupted": out / name, "out": None}
            status = run_bench(argparse.Namespace(**vars(arguments) | {"set": None} | given))
        except NodropError as error:
            if error.status == INTERRUPTED:
                again = f"Continue the set with: nodrop-lab bench --set {arguments.set}"
                hint = "\n".join([error.hint, f"{again} --out {shlex.quote(str(out))}"])
                raise NodropError(error.message, hint, INTERRUPTED) from error
            print(f"nodrop-lab: {name}: {error}", file=sys.stderr)
            status = error.status
        if status:
            failed.append(name)
    summary = f"All results of {arguments.set} are in {out}; failed: {', '.join(failed) or 'none'}."
    print(summary, file=sys.stderr)
    return FAILED if failed else 0


def _refuse_unlike(wanted: Scenario, path: Path) -> None:
    """Refuse a directory with another run than that of a set.

    Raises:
        NodropError: its cases, pairs, seconds or drivers are others.
    """
    from bench import programs, rundir, session

    meta, scenarios = rundir.read_meta(path)
    wanted, _ = programs.without_absent_vpns(wanted)
    if scenarios != {wanted.name: wanted} or meta["variants"] != [*session.compared(wanted)]:
        raise NodropError(
            f"{path} holds a run of other cases, pairs, seconds or drivers.",
            "Choose another directory with --out.",
        )


def _chosen(arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with what the arguments change.

    Raises:
        UsageError: an argument does not fit it.
    """
    chosen = scenario.load(arguments.scenario)
    if arguments.seconds and not chosen.seconds:
        raise UsageError(f"A run of {chosen.name} ends after a number of packets, not of seconds.")
    if arguments.kernel and chosen.kernel not in kernel_names():
        raise UsageError(f"{chosen.name} is not measured on a Debian kernel.")
    chosen = replace(
        chosen.with_length(arguments.pairs, arguments.seconds),
        kernel=arguments.kernel or chosen.kernel,
        only=arguments.case or "",
    )
    if not chosen.cases():
        raise UsageError(f"{chosen.name} has no case with '{arguments.case}' in its name.")
    return chosen


def _refuse_others(arguments: argparse.Namespace, *allowed: str) -> None:
    """Refuse arguments that choose what to measure, except for these.

    Raises:
        UsageError: there are some.
    """
    choosing = ("scenario", "set", "pairs", "seconds", "case", "kernel", "variants", "against")
    for name in (*choosing, "out", "interrupted"):
        if getattr(arguments, name) and name not in allowed:
            raise UsageError(
                "--continue and --set already say what to measure.",
                "Use: nodrop-lab bench --continue DIR, or nodrop-lab bench --set SET [--out DIR]",
            )


def run_list(arguments: argparse.Namespace) -> int:
    scenarios = {name: scenario.load(name) for name in scenario.known()}
    if arguments.json:
        listed = {name: {"title": entry.title} for name, entry in scenarios.items()}
        print_json("list", {"scenarios": listed})
        return 0
    width = max(map(len, scenarios), default=0)
    for name, entry in scenarios.items():
        print(f"{name:{width}}  {entry.title}")
    return 0


def run_digest(arguments: argparse.Namespace) -> int:
    from bench.source import digest

    refuse_json(arguments)
    if not (text := digest(arguments.tree)):
        raise NodropError(f"{arguments.tree} is not a clone of nodrop.")
    print(text)
    return 0


def _register_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        description="Redo table, plot and page (report.html) from the raw data of a run, complete "
        "or interrupted.",
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="results of 'nodrop-lab bench' or 'demo'"
    )
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    from bench.rundir import PAGE_NAME

    path = arguments.directory
    directory, summaries = write_report(path)
    if arguments.json:
        print_json("report", {"page": str(path / PAGE_NAME), "scenarios": summaries})
    else:
        print_table(arguments, directory, summaries)
        print(f"Table, plot and page (report.html): {path}")
    return 0


def run_figure(arguments: argparse.Namespace) -> int:
    """Draw the plot.

    Raises:
        NodropError: a directory is not that of a run, two are not comparable, or the file cannot be
            written.
    """
    from bench import rundir
    from bench.report import plot, summary

    refuse_json(arguments)
    loaded = [rundir.load(path) for path in arguments.directories]
    for other in loaded[1:]:
        if wrong := rundir.differences(loaded[0].meta, other.meta, rundir.COMPARABLE):
            raise NodropError(
                f"{other.path} and {loaded[0].path} differ in {', '.join(wrong)}.",
                "Measure both with the same sources, kernel and machine.",
            )
    read = [part for directory in loaded for part in summary.summarise(directory).values()]
    summaries = summary.latest_cases(read)
    if absent := [part["scenario"] for part in summaries if "latency_p50_ms" not in part["joins"]]:
        raise NodropError(f"{', '.join(absent)} measures no latency.")
    pairs = ", ".join(dict.fromkeys(str(part["pairs"]) for part in read))
    text = plot.medians(summaries, f"Medians of {pairs} pairs, with their intervals.")
    try:
        arguments.file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NodropError(f"Cannot write {arguments.file}: {error.strerror}.") from error
    return 0


def variant_list(text: str) -> tuple[Variant, ...]:
    """Parse ``stock,nodrop``, for argparse; return the drivers in their usual order."""
    names = text.split(",")
    known = [variant for variant in Variant if variant != Variant.OLD]
    if unknown := sorted({*names} - {*known}):
        raise argparse.ArgumentTypeError(f"unknown driver {unknown[0]}; known: {', '.join(known)}")
    return tuple(variant for variant in known if variant in names)


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
