# SPDX-License-Identifier: GPL-2.0-only
"""The command line of ``nodrop``, and of ``nodrop-lab``: arguments, errors, exit status.

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
        group: what it is for; help lists the commands by it, in the order of the table.
        name: as people type it.
        module: its module in the program's package; loaded when the command is used.
        summary: one line for people.
        netns: whether it looks at one network namespace, so that ``-n`` makes sense.
    """

    group: str
    name: str
    module: str
    summary: str
    netns: bool = False


class Program(NamedTuple):
    """A command line with commands.

    Attributes:
        name: as people type it.
        about: one line for people.
        package: has the commands' modules.
        commands: what it knows.
        more: where the help of a command sends people, with its name in place of ``{}``.
    """

    name: str
    about: str
    package: str
    commands: tuple[Command, ...]
    more: str

    @property
    def netns(self) -> bool:
        """Whether any of its commands takes ``-n``."""
        return any(command.netns for command in self.commands)


NODROP = Program(
    "nodrop",
    "Linux TUN and TAP devices that push back instead of dropping packets.",
    "nodrop.commands",
    (
        Command("look", "status", "status", "devices, who reads them, drivers, drops", netns=True),
        Command("look", "doctor", "doctor", "what is wrong, what it costs, what to do", netns=True),
        Command("look", "top", "top", "packets, drops, stops and waits, live", netns=True),
        Command("look", "drops", "drops", "where a device's packets are lost, and why", netns=True),
        Command("look", "monitor", "monitor", "stops, wakes, guard and drops, as they happen"),
        Command("look", "export", "export", "the counters, for Prometheus", netns=True),
        Command("switch", "set", "set", "backpressure of devices, now and later", netns=True),
        Command("switch", "install", "install", "replace the drivers by nodrop's"),
        Command("switch", "uninstall", "install", "use the kernel's own drivers again"),
        Command("switch", "livepatch", "livepatch", "flow control for the drivers that run"),
    ),
    "man nodrop-{}",
)
DEFAULTS = {"json": False, "netns": None, "quiet": False, "color": "auto"}
_HELP = """\
{usage}
{about}

{commands}

{options}

'{name} COMMAND --help' tells more{man}
"""
_OPTIONS = {
    "-j, --json": "print JSON on stdout",
    "-n, --netns NETNS": "look at another network namespace",
    "-q, --quiet": "show no progress",
    "--color WHEN": "auto, always or never; NO_COLOR is respected",
    "--version, --help": "print and end",
}
_ROOT = Path(__file__).resolve().parents[1]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences, and where a part of an option's name is none."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """End the command with a usage error."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", f"See '{self.prog} --help'.")


def add_options(parser: argparse.ArgumentParser, *, netns: bool = True) -> None:
    """Add what all commands have; an option that is not given is not set, and none has a help."""
    hidden = argparse.SUPPRESS
    for names in (("-j", "--json"), ("-q", "--quiet")):
        parser.add_argument(*names, action="store_true", default=hidden, help=hidden)
    if netns:
        parser.add_argument("-n", "--netns", metavar="NETNS", default=hidden, help=hidden)
    parser.add_argument("--color", choices=COLORS, metavar="WHEN", default=hidden, help=hidden)


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

    program = NODROP

    def format_help(self) -> str:
        """Return what ``--help`` prints."""
        lines, previous = [], ""
        for group, name, _, summary, _ in self.program.commands:
            lines.append(f"{'' if group == previous else group:8} {name:10} {summary}")
            previous = group
        options = dict(_OPTIONS)
        if not self.program.netns:
            del options["-n, --netns NETNS"]
        return _HELP.format(
            usage=self.format_usage(),
            about=self.program.about,
            commands="\n".join(lines),
            options="\n".join(f"{names:18} {text}" for names, text in options.items()),
            name=self.program.name,
            man=", and " + repr(self.program.more.format("COMMAND")),
        )


def top_parser(program: Program = NODROP) -> _Top:
    """Return the parser of what stands before the command."""
    netns = "[-n NETNS] " if program.netns else ""
    usage = f"{program.name} [-j] {netns}[-q] [--color WHEN] COMMAND ..."
    top = _Top(prog=program.name, usage=usage)
    top.program = program
    top.set_defaults(**DEFAULTS)
    add_options(top, netns=program.netns)
    top.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS)
    return top


def parser(only: Command | None = None, program: Program = NODROP) -> Parser:
    """Return the parser of the whole command line.

    Args:
        only: the one command whose module is loaded; None: all are.
        program: whose.
    """
    top = top_parser(program)
    below = top.add_subparsers(
        prog=program.name, required=True, metavar="COMMAND", parser_class=Parser
    )
    for module in dict.fromkeys(command.module for command in program.commands):
        if only is None or only.module == module:
            importlib.import_module(f"{program.package}.{module}").register(below)
    for name, command in below.choices.items():
        looks = next(one.netns for one in program.commands if one.name == name)
        where = "-n NETNS, " if looks else ""
        more = program.more.format(name)
        epilog = f"Also -j, {where}-q, --color WHEN. More: {more}"
        _add_below(command, epilog, netns=program.netns)
    return top


def _add_below(parser: argparse.ArgumentParser, epilog: str, *, netns: bool) -> None:
    """Add the options to a command and to all commands below it."""
    parser.epilog = epilog
    add_options(parser, netns=netns)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_below(below, epilog, netns=netns)


def named(argv: Sequence[str] | None, program: Program = NODROP) -> Command:
    """Return the command that a command line names; nothing of it is loaded.

    Raises:
        UsageError: there is none of that name.
        SystemExit: the command line asks for help or the version.
    """
    top = top_parser(program)
    top.add_argument("words", metavar="COMMAND", nargs=argparse.PARSER)
    word = top.parse_args(argv).words[0]
    known = {command.name: command for command in program.commands}
    if word not in known:
        close = difflib.get_close_matches(word, known, 1)
        lists = f"'{program.name} --help' lists the commands."
        raise UsageError(
            f"There is no command '{word}'.", f"Did you mean '{close[0]}'?" if close else lists
        )
    return known[word]


def _run(argv: Sequence[str] | None, program: Program) -> int:
    command = named(argv, program)
    arguments = parser(command, program).parse_args(argv)
    if arguments.netns is not None and not command.netns:
        raise UsageError(f"'nodrop {command.name}' looks at no network namespace.", "Leave -n out.")
    status: int = arguments.run(arguments)
    return status


def main(argv: Sequence[str] | None = None, program: Program = NODROP) -> int:
    """Run a command line and return its exit status."""
    try:
        return _run(argv, program)
    except NodropError as error:
        print(clean_lines(f"{program.name}: {error}"), file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        streams.drop()
        print(f"{program.name}: interrupted", file=sys.stderr)
        return INTERRUPTED
