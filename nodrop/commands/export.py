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

from nodrop.commands import common
from nodrop.commands.common import print_json
from nodrop.prometheus import MetricFamily, collect, page
from nodrop.screen import clean_lines


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        description="Print the counters of TUN, TAP, macvtap, ipvtap and tunnel devices and the "
        "loaded drivers, in Prometheus' text format, for node_exporter's textfile collector.",
    )
    common.add_device_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="replace FILE atomically instead of printing",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    host = common.read_host(arguments)
    devices = common.select(host, arguments.device)
    families = collect(host, devices, time.monotonic() - begun)
    if arguments.out is not None:
        common.write_file(arguments.out, page(families))
    if arguments.json:
        print_json("export", _json(families))
    elif arguments.out is None:
        _print(page(families).decode())
    return 0


def _print(text: str) -> None:
    """Print the page as UTF-8, which the format requires, whatever the locale."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    # Names may contain terminal escapes.
    sys.stdout.write(clean_lines(text) if sys.stdout.isatty() else text)


def _json(families: Sequence[MetricFamily]) -> dict[str, Any]:
    """Return the families as JSON, without those that have no sample, as in the text."""
    return {
        "families": [
            {
                "name": family.name,
                "type": family.kind,
                "help": family.help,
                "samples": [
                    {"labels": dict(zip(family.labels, values)), "value": number}
                    for values, number in family.samples.items()
                ],
            }
            for family in families
            if family.samples
        ]
    }
