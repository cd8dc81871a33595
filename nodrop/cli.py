# SPDX-License-Identifier: GPL-2.0-only
"""The ``nodrop`` command: arguments, errors, exit status.

Data go to stdout, everything else to stderr. Exit status: 0 fine, 1 failed, 2 usage,
4 not supported here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nodrop.commands import bench, demo, install, report
from nodrop.errors import NodropError
from nodrop.signals import INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="nodrop",
        description="Linux TUN and TAP devices that hold packets back instead of dropping them.",
    )
    top.add_argument("-j", "--json", action="store_true", help="print JSON on stdout")
    top.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for module in (bench, demo, install, report):
        module.register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("nodrop: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status
