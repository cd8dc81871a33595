# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab``: benchmarks and guests, from a clone."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop import cli, start
from nodrop.cli import Command, Program

PROGRAM = Program(
    "nodrop-lab",
    "Compare stock drivers, upstream's flag and nodrop in a kernel of their own.",
    "bench.commands",
    (
        Command("measure", "demo", "demo", "all three in under a minute"),
        Command("measure", "bench", "bench", "one scenario with all three, interleaved"),
        Command("measure", "list", "list", "the scenarios"),
        Command("measure", "report", "report", "redo table, plot and page of a run"),
        Command("try", "run", "run", "a shell or a command in a guest"),
    ),
    "docs/benchmarking.md",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    return cli.main(argv, PROGRAM)


def run() -> int:
    """Start the program ``nodrop-lab``."""
    return start.main("bench.cli")
