# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop doctor``: problems of virtual links, what they cost, and commands that fix them."""

from __future__ import annotations

import argparse

from nodrop import screen
from nodrop.commands import common, where
from nodrop.commands.common import print_json
from nodrop.commands.status import headline
from nodrop.doctor import show
from nodrop.doctor.examine import count, examine
from nodrop.doctor.sample import record
from nodrop.errors import NodropError, UsageError
from nodrop.host.build import build
from nodrop.host.raw import Raw

FOUND = 3
"""Exit status when there is a warning or a failure."""
_LONG_S = 2.0
_UNKNOWN = 3
"""Exit status of a monitoring plugin that could not run its checks."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "doctor",
        description="Sample TUN, TAP, macvtap, ipvtap and tunnel devices twice. Report problems of "
        "the devices and of this machine, what they cost, and commands that fix them. Nothing is "
        "changed. Exit status 3: there is a warning or a failure.",
    )
    where.add_arguments(parser)
    parser.add_argument("--all", action="store_true", help="show checks that passed, too")
    parser.add_argument(
        "--seconds",
        type=common.seconds,
        default=1.0,
        metavar="S",
        help="seconds between the two samples (1)",
    )
    parser.add_argument("--nagios", action="store_true", help="act as a Nagios or Icinga plugin")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Sample the machine, run the checks and print the findings."""
    try:
        return _run(arguments)
    except Exception as error:
        if isinstance(error, UsageError) or not arguments.nagios:
            raise
        text = error.message if isinstance(error, NodropError) else repr(error)
        print(show.nagios(_UNKNOWN, text))
        return _UNKNOWN


def _run(arguments: argparse.Namespace) -> int:
    if arguments.nagios and arguments.json:
        raise UsageError("--nagios and --json cannot be combined.")
    where.check(arguments)

    messages = screen.messages(arguments)

    def known(raw: Raw) -> None:
        where.pick(build(raw), arguments.device)
        if arguments.seconds >= _LONG_S and not arguments.quiet and not arguments.nagios:
            messages.print(f"Watching for {arguments.seconds:g} s ...", "dim")

    seen = record(
        arguments.netns,
        everywhere=arguments.all_namespaces,
        seconds=arguments.seconds,
        known=known,
    )
    look = seen.look(frozenset(arguments.device))
    if arguments.device and not look.links:
        raise NodropError(f"{', '.join(look.gone)} disappeared during the check.")
    findings = examine(look)
    if arguments.nagios:
        status, line = show.as_nagios(findings)
        print(line)
        return status
    if arguments.json:
        print_json("doctor", show.as_json(look, findings))
    else:
        console = screen.console(arguments)
        console.print(headline(look.host), "dim")
        show.to_people(console, look, findings, fine=arguments.all)
        console.stream.flush()
        for label in look.gone:
            messages.print(f"{label} disappeared during the check.", "dim")
    counts = count(findings)
    return FOUND if counts["warn"] or counts["fail"] else 0
