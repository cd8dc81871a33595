# SPDX-License-Identifier: GPL-2.0-only
"""The command line of ``nodrop``, and of ``nodrop-lab``: arguments, errors, exit status.

Data goes to stdout, everything else to stderr. Exit status: 0 success, 1 failure, 2 usage
error, 3 doctor found a problem, 4 not supported here, 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from nodrop import start
from nodrop.errors import INTERRUPTED, NodropError, UsageError
from nodrop.screen import COLORS


class Command(NamedTuple):
    """One command.

    Attributes:
        group: heading under which help lists the command; commands keep their order.
        module: module in the program's package; imported when the command is used.
        summary: one line for help, man pages and completion.
        netns: whether the command accepts ``-n``.
    """

    group: str
    name: str
    module: str
    summary: str
    netns: bool = False


class Program(NamedTuple):
    """A program with subcommands.

    Attributes:
        about: one line for help.
        package: package with the commands' modules; "" if they have full names.
        more: what the help of a command refers to; ``{}`` stands for the command's name.
        usual: the command that runs if none is named; "": one must be.
    """

    name: str
    about: str
    package: str
    commands: tuple[Command, ...]
    more: str
    usual: str = ""

    @property
    def netns(self) -> bool:
        return any(command.netns for command in self.commands)


NODROP = Program(
    "nodrop",
    "Find packet drops of TUN and TAP devices, and make the drivers push back instead.",
    "nodrop.commands",
    (
        Command("show", "status", "status", "list devices: owner, driver, drops", netns=True),
        Command("show", "doctor", "doctor", "report problems and how to fix them", netns=True),
        Command("show", "top", "top", "show packets, drops and queueing delay, live", netns=True),
        Command("show", "drops", "drops", "show where and why a device's packets drop", netns=True),
        Command("show", "monitor", "monitor", "print stops, wakes and drops as they happen"),
        Command("show", "export", "export", "print the counters for Prometheus", netns=True),
        Command("show", "report", "report", "print what a maintainer needs, no names", netns=True),
        Command("change", "set", "set", "switch backpressure of devices on or off", netns=True),
        Command("change", "test", "test", "measure a device, backpressure on and off", netns=True),
        Command("change", "keep-qdiscs", "keep_qdiscs", "give new devices kept qdiscs (service)"),
        Command("change", "install", "install", "install nodrop's drivers"),
        Command("change", "uninstall", "install", "remove nodrop's drivers"),
        Command("change", "reload", "reload", "load the installed drivers: sessions end"),
        Command("change", "livepatch", "livepatch", "patch the running drivers, or undo that"),
    ),
    "man nodrop-{}",
    usual="status",
)
DEFAULTS = {"json": False, "netns": None, "quiet": False, "color": "auto"}
_HELP = """\
{usage}
{about}

{commands}

{options}

See '{name} COMMAND --help'{man}.
"""
_OPTIONS = {
    "-j, --json": "print JSON on stdout",
    "-n, --netns NETNS": "use another network namespace: name, PID or path",
    "-q, --quiet": "print no progress",
    "--color WHEN": "auto, always or never; auto respects NO_COLOR",
    "-V, --version": "print the version",
    "-h, --help": "print this help, as 'help' does; 'help COMMAND' prints a command's",
}
_VERSION = __file__.removesuffix("nodrop/cli.py") + "kmod/VERSION"


class Parser(argparse.ArgumentParser):
    """A parser that reports errors as sentences and refuses abbreviated options."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", f"See '{self.prog} --help'.")


def add_options(parser: argparse.ArgumentParser, *, netns: bool = True) -> None:
    """Add the options of all commands, without help; an option that is not given is not set."""
    hidden = argparse.SUPPRESS
    for names in (("-j", "--json"), ("-q", "--quiet")):
        parser.add_argument(*names, action="store_true", default=hidden, help=hidden)
    if netns:
        parser.add_argument("-n", "--netns", metavar="NETNS", default=hidden, help=hidden)
    parser.add_argument("--color", choices=COLORS, metavar="WHEN", default=hidden, help=hidden)


def version() -> str:
    try:
        # The loader also reads from nodrop.pyz.
        data: bytes = __loader__.get_data(_VERSION)  # type: ignore[name-defined]
        return data.decode().strip()
    except OSError as error:
        raise NodropError(
            f"This copy of nodrop is incomplete: {error.filename}: {error.strerror}.",
            "Reinstall it.",
        ) from error


class _Version(argparse.Action):
    """Print the version, which is read only when requested."""

    def __call__(self, *_: object) -> None:
        print(f"nodrop {version()}")
        raise SystemExit(0)


class _Top(Parser):
    """The top-level parser; its help fits on one screen."""

    program = NODROP

    def format_help(self) -> str:
        lines, previous = [], ""
        for group, name, _, summary, _ in self.program.commands:
            lines.append(f"{'' if group == previous else group:8} {name:11} {summary}")
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
            man=" and " + self.program.more.format("COMMAND"),
        )


def top_parser(program: Program = NODROP) -> _Top:
    """Return the parser of the options before the command."""
    netns = "[-n NETNS] " if program.netns else ""
    command = "[COMMAND] ..." if program.usual else "COMMAND ..."
    usage = f"{program.name} [-j] {netns}[-q] [--color WHEN] {command}"
    top = _Top(prog=program.name, usage=usage)
    top.program = program
    top.set_defaults(**DEFAULTS)
    add_options(top, netns=program.netns)
    top.add_argument("-V", "--version", action=_Version, nargs=0, default=argparse.SUPPRESS)
    return top


def parser(only: Command | None = None, program: Program = NODROP) -> Parser:
    """Return the parser of the whole command line.

    Args:
        only: the command whose module is imported; None: all modules are.
    """
    top = top_parser(program)
    below = top.add_subparsers(
        prog=program.name, required=True, metavar="COMMAND", parser_class=Parser
    )
    for module in dict.fromkeys(command.module for command in program.commands):
        if only is None or only.module == module:
            importlib.import_module(f"{program.package}.{module}".lstrip(".")).register(below)
    for name, command in below.choices.items():
        netns = any(known.netns for known in program.commands if known.name == name)
        where = "-n NETNS, " if netns else ""
        more = program.more.format(name)
        epilog = f"Common options: -j, {where}-q, --color WHEN. See {more}."
        _add_below(command, epilog, netns=program.netns)
    return top


def _add_below(parser: argparse.ArgumentParser, epilog: str, *, netns: bool) -> None:
    parser.epilog = epilog
    add_options(parser, netns=netns)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_below(below, epilog, netns=netns)


def command_of(name: str, program: Program = NODROP) -> Command:
    """Return the command of a name; UsageError if there is none."""
    known = {command.name: command for command in program.commands}
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        lists = f"'{program.name} --help' lists the commands."
        raise UsageError(
            f"There is no command '{name}'.", f"Did you mean '{close[0]}'?" if close else lists
        )
    return known[name]


def named(argv: Sequence[str], program: Program = NODROP) -> tuple[Command, list[str]]:
    """Return the command of a command line, without importing its module, and the whole line.

    That has the usual command if none was given, and --help in place of ``help``.

    Raises:
        UsageError: there is no such command, or none, and no usual one.
        SystemExit: --help or --version was given.
    """
    top = top_parser(program)
    typed = top.add_argument("command", metavar="COMMAND", nargs=argparse.PARSER)
    typed.required = not program.usual
    line = [*argv]
    words = top.parse_args(line).command
    if not words:
        words = [program.usual]
        line += words
    elif words[0] == "help":
        words = [word for word in words if word not in ("help", "-h", "--help")]
        if words[1:]:
            use = f"Use: {program.name} help [COMMAND]."
            raise UsageError(f"Unknown argument: {words[1]}.", use)
        line = [*words, "--help"]
        words = words or top.parse_args(line).command
    return command_of(words[0], program), line


def _run(argv: Sequence[str] | None, program: Program) -> int:
    command, line = named(sys.argv[1:] if argv is None else argv, program)
    arguments, unknown = parser(command, program).parse_known_args(line)
    if unknown:
        see = f"See '{program.name} {command.name} --help'."
        raise UsageError(f"Unknown argument: {unknown[0]}.", see)
    if arguments.netns is not None and not command.netns:
        raise UsageError(f"'{program.name} {command.name}' has no option -n.", "Run it without -n.")
    status: int = arguments.run(arguments)
    return status


def main(argv: Sequence[str] | None = None, program: Program = NODROP) -> int:
    """Run a command line and return its exit status."""
    try:
        return _run(argv, program)
    except NodropError as error:
        return start.report(program.name, error, argv)
    except KeyboardInterrupt:
        start.discard_output()
        return start.report(program.name, NodropError("interrupted", status=INTERRUPTED), argv)
