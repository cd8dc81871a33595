# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop export``: counters for a monitoring system."""

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
        description="Print the counters of TUN, TAP, macvtap, ipvtap and tunnel devices and the "
        "loaded drivers, in Prometheus' text format, for node_exporter's textfile collector.",
    )
    where.add_arguments(parser)
    parser.add_argument(
        "--prometheus",
        action="store_true",
        help="use Prometheus' text format: the default, and the only one",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="replace FILE atomically instead of printing",
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
    """Print the page as UTF-8, which the format requires, whatever the locale."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    # Names may contain terminal escapes.
    sys.stdout.write(clean_lines(page) if sys.stdout.isatty() else page)


def describe(families: Sequence[Family]) -> dict[str, Any]:
    """Return the families as JSON, without those that have no sample, as in the text."""
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
