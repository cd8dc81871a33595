# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab demo``: the main comparison in under a minute, as a table and a plot."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import scenario
from bench.commands import shared
from lab.variant import COMPARED
from nodrop.commands.common import print_json, progress

LENGTHS = {"tap": (2, 0.15), "nullvpn": (6, 0.4)}
"""Scenarios of the demo: pairs, and window in seconds; in total less than a minute. A 95 % interval
of a median needs six ratios, and tap has only two pairs: it gets no such interval."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo",
        description="Compare stock, upstream's flag and nodrop in one kernel: drops and "
        "throughput of a TAP, latency under load of a VPN. Prints a table and draws a plot. "
        "Exit status 1 if nodrop's driver dropped a packet that a qdisc could have queued.",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="results directory (out/demo-TIME)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from bench.rundir import MARKDOWN_NAME, PAGE_NAME, PLOT_NAME
    from bench.session import measure

    chosen = [
        scenario.load(name).with_length(pairs, seconds)
        for name, (pairs, seconds) in LENGTHS.items()
    ]
    out = arguments.out or shared.default_out("demo")
    with progress(arguments) as steps:
        measure(chosen, COMPARED, out, steps)
    directory, summaries = shared.write_report(out)
    if arguments.json:
        print_json("demo", {"scenarios": summaries})
    else:
        shared.print_table(arguments, directory, summaries)
        print(f"Table:   {out / MARKDOWN_NAME}")
        print(f"Plot:    {out / PLOT_NAME}")
        print(f"Page:    {out / PAGE_NAME}")
        print(f"Redo:    nodrop-lab report {out}")
    return shared.check(directory)
