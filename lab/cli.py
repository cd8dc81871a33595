# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop-lab``: guests, kernels, tests and benchmarks, from a clone."""

from __future__ import annotations

from collections.abc import Sequence

from lab import meet_deadline
from nodrop import cli, start
from nodrop.cli import Command, Program

PROGRAM = Program(
    "nodrop-lab",
    "Compare stock drivers, upstream's flag and nodrop in a kernel of their own, and test them.",
    "",
    (
        Command("measure", "demo", "bench.commands", "all three in about a minute"),
        Command("measure", "bench", "bench.commands", "one scenario with all three"),
        Command("measure", "list", "bench.commands", "the scenarios"),
        Command("measure", "report", "bench.commands", "redo table, plot and page of a run"),
        Command("measure", "figure", "bench.commands", "one plot of several runs' latency"),
        Command("measure", "digest", "bench.commands", "the digest that results name"),
        Command("try", "run", "lab.commands", "a shell or a command in a guest"),
        Command("try", "build", "lab.commands", "kernels, ahead of their first use"),
        Command("test", "test", "lab.commands", "the tests in guests, all or by name"),
        Command("test", "sweep", "proof.commands", "combinations of devices and events"),
        Command("test", "fuzz", "proof.commands", "random programs of system calls"),
    ),
    "docs/benchmarking.md and docs/testing.md",
)
"""Modules are named, and imported when their command runs: lab depends on neither bench nor
proof."""


def main(argv: Sequence[str] | None = None) -> int:
    meet_deadline()
    return cli.main(argv, PROGRAM)


def run() -> int:
    return start.main("lab.cli")
