# SPDX-License-Identifier: GPL-2.0-only
"""The options that all commands have, before and after the command's name."""

from __future__ import annotations

import argparse
from typing import NoReturn

from nodrop.errors import UsageError
from nodrop.screen import COLORS

DEFAULTS = {"json": False, "netns": None, "quiet": False, "color": "auto"}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences, and where a part of an option's name is none."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """End the command with a usage error."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", f"See '{self.prog} --help'.")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser; what is not given is not set, and its help has none."""
    hidden = argparse.SUPPRESS
    for names in (("-j", "--json"), ("-q", "--quiet")):
        parser.add_argument(*names, action="store_true", default=hidden, help=hidden)
    parser.add_argument("-n", "--netns", metavar="NETNS", default=hidden, help=hidden)
    parser.add_argument("--color", choices=COLORS, metavar="WHEN", default=hidden, help=hidden)


def add_below(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command and to all commands below it."""
    add(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                add_below(below)
