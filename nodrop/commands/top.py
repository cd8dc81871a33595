# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop top``: rates of packets, drops and stops, and queueing delay, refreshed."""

from __future__ import annotations

import argparse
import os
import time

from nodrop import screen
from nodrop.columns import clean
from nodrop.commands import where
from nodrop.commands.common import positive_int, print_json, seconds_from
from nodrop.commands.status import headline
from nodrop.screen import Screen
from nodrop.top import describe, view
from nodrop.top.refresh import Look, Looks
from nodrop.top.view import LEAST_S, MOST_S, Sort, View

INTERVAL_S = 3.0
_CLEAR = "\033[H\033[J"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's arguments."""
    parser = commands.add_parser(
        "top",
        description="Show packets, drops by cause, stops, packets in the ring and estimated "
        "queueing delay of TUN, TAP, macvtap, ipvtap and tunnel devices, live, until Ctrl-C.",
    )
    where.add_arguments(parser)
    parser.add_argument("--queues", action="store_true", help="show each queue, too")
    parser.add_argument(
        "--interval",
        type=seconds_from(LEAST_S, MOST_S),
        default=INTERVAL_S,
        metavar="S",
        help="seconds between refreshes, 0.1 to 3600 (3)",
    )
    parser.add_argument("--count", type=positive_int, metavar="N", help="exit after N refreshes")
    parser.add_argument(
        "--sort", type=_sort, default=Sort.DROPS, metavar="KEY", help=f"{', '.join(Sort)} (drops)"
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="show at most N devices")
    parser.set_defaults(run=run)


def _sort(text: str) -> Sort:
    try:
        return Sort(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"unknown key '{text}'; known: {', '.join(Sort)}"
        ) from error


def run(arguments: argparse.Namespace) -> int:
    """Show the devices until --count or Ctrl-C."""
    where.check(arguments)
    chosen = View(
        sort=arguments.sort,
        queues=arguments.queues,
        names=frozenset(arguments.device),
        limit=arguments.limit,
    )
    console = screen.console(arguments)
    looks = Looks(arguments.netns, everywhere=arguments.all_namespaces)
    first = looks.look()
    where.pick(first.host, arguments.device)
    live = screen.can_move(console.stream) and not arguments.json
    if live:
        _draw(first, chosen, console)
    for number, look in enumerate(looks.every(arguments.interval, arguments.count)):
        if arguments.json:
            _print_json(look, chosen, number + 1)
        elif live:
            _draw(look, chosen, console)
        else:
            if number:
                console.print()
            _print_table(look, chosen, console)
            _remark(arguments, look, first=number == 0)
    return 0


def _draw(look: Look, chosen: View, console: Screen) -> None:
    """Redraw the terminal with as many lines as fit."""
    rows = chosen.choose(look.rows)
    clock = time.strftime("%H:%M:%S", time.localtime(look.time_s))
    head = [f"{clock}  {headline(look.host)}", view.summary(look.rows, rows, chosen)]
    table = console.layout(*view.table(rows, chosen.sort, queues=chosen.queues))
    lines = [*(console.paint(clean(line)[: console.width], "dim") for line in head), *table.lines]
    height = os.get_terminal_size(console.stream.fileno()).lines or 24
    console.stream.write(_CLEAR + "".join(f"{line}\n" for line in lines[: height - 1]))
    console.stream.flush()


def _print_json(look: Look, chosen: View, number: int) -> None:
    rows = chosen.choose(look.rows)
    print_json(
        "top",
        {
            "refresh": number,
            "time_s": look.time_s,
            "kernel": look.host.release,
            "hidden_processes": look.host.hidden_processes,
            "unread_namespaces": look.host.unread,
            "unreached_namespaces": look.host.unreached,
            "devices_in_all": len(look.rows),
            "devices": [describe.row(one, queues=chosen.queues) for one in rows],
        },
        compact=True,
    )


def _print_table(look: Look, chosen: View, console: Screen) -> None:
    rows = chosen.choose(look.rows)
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(look.time_s))
    console.print(f"{clock}  {view.summary(look.rows, rows, chosen)}", "dim")
    if rows:
        console.table(*view.table(rows, chosen.sort, queues=chosen.queues))
    else:
        gone = f"Not here now: {', '.join(sorted(chosen.names))}."
        console.print(gone if chosen.names else where.NONE)
    console.stream.flush()


def _remark(arguments: argparse.Namespace, look: Look, *, first: bool) -> None:
    """Print once what could not be read."""
    if not first or arguments.quiet:
        return
    messages = screen.messages(arguments)
    if look.host.hidden_processes:
        messages.print(where.hidden(look.host), "dim")
    for line in where.unread(look.host):
        messages.print(line, "dim")
