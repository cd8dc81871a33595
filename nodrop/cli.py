# SPDX-License-Identifier: GPL-2.0-only
"""The ``nodrop`` command: arguments, errors, exit status.

Data go to stdout, everything else to stderr. Exit status: 0 fine, 1 failed, 2 usage,
3 doctor found something, 4 not supported here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from nodrop import streams
from nodrop.columns import clean_lines
from nodrop.errors import NodropError, UsageError
from nodrop.screen import COLORS
from nodrop.signals import INTERRUPTED


class Command(NamedTuple):
    """One command.

    Attributes:
        group: what it is for, see GROUPS.
        name: as people type it.
        module: its module in nodrop.commands; loaded when the command is used.
        summary: one line for people.
        netns: whether it looks at one network namespace, so that ``-n`` makes sense.
    """

    group: str
    name: str
    module: str
    summary: str
    netns: bool = False


GROUPS = ("look", "switch", "measure")
COMMANDS = (
    Command("look", "status", "status", "devices, who reads them, drivers, drops", netns=True),
    Command("look", "doctor", "doctor", "what is wrong, what it costs, what to do", netns=True),
    Command("look", "top", "top", "packets, drops, stops and waits, live", netns=True),
    Command("look", "why", "why", "where a device's packets are lost, and why", netns=True),
    Command("look", "export", "export", "the counters, for Prometheus", netns=True),
    Command("switch", "enable", "switch", "make devices hold packets back", netns=True),
    Command("switch", "disable", "switch", "make devices drop again", netns=True),
    Command("switch", "install", "install", "make the drivers lossless"),
    Command("switch", "uninstall", "install", "make the drivers stock again"),
    Command(
        "measure",
        "demo",
        "bench.commands.demo",
        "stock, upstream's flag and nodrop in under a minute",
    ),
    Command(
        "measure", "bench", "bench.commands.bench", "one scenario with all drivers, side by side"
    ),
    Command(
        "measure", "lab", "bench.commands.lab", "a shell or a command in a guest, to try things"
    ),
    Command("measure", "report", "bench.commands.report", "table, picture and page of a run again"),
)
DEFAULTS = {"json": False, "netns": None, "quiet": False, "color": "auto"}
_USAGE = "nodrop [-j] [-n NETNS] [-q] [--color WHEN] COMMAND ..."
_HELP = """\
{usage}
Linux TUN and TAP devices that hold packets back instead of dropping them.

{commands}

-j, --json         print JSON on stdout
-n, --netns NETNS  look at another network namespace
-q, --quiet        show no progress
--color WHEN       auto, always or never; NO_COLOR is respected
--version, --help  'nodrop COMMAND --help' and 'man nodrop-COMMAND' tell more
"""
_ROOT = Path(__file__).resolve().parents[1]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences, and where a part of an option's name is none."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """End the command with a usage error."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", f"See '{self.prog} --help'.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what all commands have; an option that is not given is not set, and none has a help."""
    hidden = argparse.SUPPRESS
    for names in (("-j", "--json"), ("-q", "--quiet")):
        parser.add_argument(*names, action="store_true", default=hidden, help=hidden)
    parser.add_argument("-n", "--netns", metavar="NETNS", default=hidden, help=hidden)
    parser.add_argument("--color", choices=COLORS, metavar="WHEN", default=hidden, help=hidden)


def add_options_below(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command and to all commands below it."""
    add_options(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                add_options_below(below)


def version() -> str:
    """Return nodrop's version."""
    try:
        return (_ROOT / "kmod" / "VERSION").read_text().strip()
    except OSError as error:
        raise NodropError(
            f"This nodrop is not complete: {error.strerror}: {error.filename}."
        ) from error


class _Version(argparse.Action):
    """Print the version; read only when it is asked for."""

    def __call__(self, *_: object) -> None:
        print(f"nodrop {version()}")
        raise SystemExit(0)


class _Top(Parser):
    """The parser of the whole command line, whose help fits on a screen."""

    def format_help(self) -> str:
        """Return what ``nodrop --help`` prints."""
        lines, previous = [], ""
        for group, name, _, summary, _ in sorted(COMMANDS, key=lambda one: GROUPS.index(one.group)):
            lines.append(f"{'' if group == previous else group:8} {name:10} {summary}")
            previous = group
        return _HELP.format(usage=self.format_usage(), commands="\n".join(lines))


def top_parser() -> _Top:
    """Return the parser of what stands before the command."""
    top = _Top(prog="nodrop", usage=_USAGE)
    top.set_defaults(**DEFAULTS)
    add_options(top)
    top.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS)
    return top


def parser(only: Command | None = None) -> Parser:
    """Return the parser of the whole command line.

    Args:
        only: the one command whose module is loaded; None: all are.
    """
    top = top_parser()
    below = top.add_subparsers(prog="nodrop", required=True, metavar="COMMAND", parser_class=Parser)
    for module in dict.fromkeys(command.module for command in COMMANDS):
        if only is None or only.module == module:
            importlib.import_module(
                module if "." in module else f"nodrop.commands.{module}"
            ).register(below)
    for name, command in below.choices.items():
        looks = next(one.netns for one in COMMANDS if one.name == name)
        where = "-n NETNS, " if looks else ""
        command.epilog = f"Also -j, {where}-q, --color WHEN. More: man nodrop-{name}"
        add_options_below(command)
    return top


def named(argv: Sequence[str] | None) -> Command:
    """Return the command that a command line names; nothing of it is loaded.

    Raises:
        UsageError: there is none of that name.
        SystemExit: the command line asks for help or the version.
    """
    top = top_parser()
    top.add_argument("words", metavar="COMMAND", nargs=argparse.PARSER)
    word = top.parse_args(argv).words[0]
    known = {command.name: command for command in COMMANDS}
    if word not in known:
        close = difflib.get_close_matches(word, known, 1)
        raise UsageError(
            f"There is no command '{word}'.",
            f"Did you mean '{close[0]}'?" if close else "'nodrop --help' lists the commands.",
        )
    return known[word]


def _run(argv: Sequence[str] | None) -> int:
    command = named(argv)
    arguments = parser(command).parse_args(argv)
    if arguments.netns is not None and not command.netns:
        raise UsageError(f"'nodrop {command.name}' looks at no network namespace.", "Leave -n out.")
    status: int = arguments.run(arguments)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    try:
        return _run(argv)
    except NodropError as error:
        print(clean_lines(f"nodrop: {error}"), file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        streams.drop()
        print("nodrop: interrupted", file=sys.stderr)
        return INTERRUPTED
