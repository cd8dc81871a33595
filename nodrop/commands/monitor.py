# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop monitor``: flow-control events and drops, as they happen."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from datetime import UTC, datetime

from nodrop import screen
from nodrop.commands.common import print_json, seconds_from
from nodrop.host import switch
from nodrop.trace.flow import EVENTS, Event, Monitor
from nodrop.trace.tracefs import Tracefs

KINDS = (*EVENTS, "drop")
USUAL = ("stop", "wake", "guard", "drop")


def _kinds(text: str) -> tuple[str, ...]:
    """Parse ``stop,guard``, for argparse."""
    words = text.split(",")
    if unknown := sorted(set(words) - set(KINDS)):
        raise argparse.ArgumentTypeError(f"unknown event '{unknown[0]}'; known: {', '.join(KINDS)}")
    return tuple(words)


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "monitor",
        description="Print flow-control events and drops of nodrop's drivers as they happen, one "
        "per line, until Ctrl-C; with -j, one JSON object per line. Needs root.",
    )
    parser.add_argument("devices", nargs="*", metavar="DEV", help="only these TUN and TAP devices")
    parser.add_argument(
        "--events",
        type=_kinds,
        default=USUAL,
        metavar="LIST",
        help=f"some of {','.join(KINDS)} ({','.join(USUAL)})",
    )
    parser.add_argument(
        "--seconds", type=seconds_from(0.1, 86400), metavar="S", help="exit after S seconds"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print events until --seconds or Ctrl-C."""
    files = Tracefs()
    files.open()
    with ExitStack() as stack:
        monitor = Monitor(files, arguments.devices, arguments.events)
        stack.callback(monitor.close)
        monitor.start()
        missing = ", ".join(sorted({*arguments.devices} - {*switch.names(None)}))
        if missing and not arguments.quiet:
            note = f"There is no device {missing} in this network namespace now."
            screen.messages(arguments).text(note, "dim")
        for event in monitor.events(arguments.seconds):
            if arguments.json:
                when = datetime.fromtimestamp(event.time_s, UTC).isoformat(timespec="microseconds")
                head = {"time": when, "event": event.kind, "device": event.device or None}
                print_json("monitor", {**head, **event.more}, compact=True)
            else:
                print(line(event), flush=True)
    return 0


def line(event: Event) -> str:
    """Return an event as a line of text."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.time_s))
    words = [f"{clock}.{int(event.time_s % 1 * 10**6):06}", event.device, event.kind]
    more = dict(event.more)
    if "held" in more:
        limit, most = more.pop("limit"), more.pop("max")
        more["ring"] = f"{more.pop('held')}/{limit}, at most {most}"
    words += [f"{name} {value}" for name, value in more.items()]
    return "  ".join(filter(None, words))
