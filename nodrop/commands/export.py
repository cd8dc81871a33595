# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop export``: the counters for a monitoring system."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodrop.columns import clean_lines
from nodrop.commands import where
from nodrop.commands.common import print_json
from nodrop.prometheus import file, text
from nodrop.prometheus.collect import collect
from nodrop.prometheus.text import Family


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "export",
        description="Print the counters of TUN, TAP, macvtap, ipvtap and tunnel devices, and the "
        "drivers that they run on, for the textfile collector of node_exporter.",
    )
    where.add_arguments(parser)
    parser.add_argument(
        "--prometheus",
        action="store_true",
        help="in Prometheus' text exposition format; there is no other yet",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write it to a file, which is there as a whole or as it was before",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics, or write them to a file."""
    begun = time.monotonic()
    host = where.look(arguments)
    devices = where.pick(host, arguments.device)
    families = collect(host, devices, time.monotonic() - begun)
    if arguments.out is not None:
        file.replace(arguments.out, text.page(families))
    if arguments.json:
        print_json("export", describe(families))
    elif arguments.out is None:
        _print(text.page(families).decode())
    return 0


def _print(page: str) -> None:
    """Print the page as UTF-8, which the format is; a locale may say otherwise."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    # A terminal would take what is in somebody's name for a command; the format has lines only.
    sys.stdout.write(clean_lines(page) if sys.stdout.isatty() else page)


def describe(families: Sequence[Family]) -> dict[str, Any]:
    """Return the same as JSON; families without a sample are left out, as they are in the text."""
    return {
        "families": [
            {
                "name": family.name,
                "type": family.kind,
                "help": family.help,
                "samples": [
                    {"labels": dict(zip(family.labels, values, strict=True)), "value": number}
                    for values, number in family.samples.items()
                ],
            }
            for family in families
            if family.samples
        ]
    }
