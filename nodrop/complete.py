# SPDX-License-Identifier: GPL-2.0-only
"""Shell completion: ``nodrop __complete SHELL WORD...``.

The words are those after ``nodrop`` up to the cursor; the last one may be empty. Each output
line is a word, or a word, a tab and its description; ``:files`` and ``:dirs`` ask the shell to
complete files or directories. Options and choices come from the parser. The metavar of an
argument (``DEV``, ``NETNS``) selects the source of its values.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from nodrop import cli, proc
from nodrop.errors import NodropError

FILES, DIRECTORIES = ":files", ":dirs"
IP_TIMEOUT_S = 2.0
_KINDS = {"tun", "macvtap", "ipvtap"}

Candidates = Iterator[tuple[str, str]]
"""Words and their descriptions."""


def devices(netns: str | None) -> Candidates:
    """Return the TUN, TAP, macvtap and ipvtap devices; none if ``ip`` fails."""
    where = ["-n", netns] if netns else []
    with suppress(NodropError, ValueError):
        printed = proc.ask("ip", *where, "-d", "-j", "link", timeout=IP_TIMEOUT_S).stdout
        # ip prints control characters in names as they are.
        for link in json.loads(printed, strict=False):
            info = link.get("linkinfo", {})
            if info.get("info_kind") in _KINDS:
                yield link["ifname"], info.get("info_data", {}).get("type", info["info_kind"])


def kernels(_netns: str | None) -> Candidates:
    """Return the kernels that have modules, and "all"."""
    with suppress(OSError):
        yield from ((path.name, "") for path in sorted(Path("/lib/modules").iterdir()))
    yield "all", "every kernel with headers"


def events(_netns: str | None) -> Candidates:
    from nodrop.commands.monitor import KINDS

    return ((kind, "") for kind in KINDS)


def namespaces(_netns: str | None) -> Candidates:
    from nodrop.host.netns import named

    return ((name, "") for name in named())


SOURCES: dict[str, Callable[[str | None], Candidates]] = {
    "DEV": devices,
    "NETNS": namespaces,
    "RELEASE": kernels,
    "LIST": events,
    "DIR": lambda _: iter([(DIRECTORIES, "")]),
    "FILE": lambda _: iter([(FILES, "")]),
}


def _values(action: argparse.Action, netns: str | None) -> Candidates:
    if isinstance(action, argparse._SubParsersAction):
        texts = {below.dest: below.help or "" for below in action._get_subactions()}
        for name in action.choices:
            yield name, texts.get(name, "")
    elif action.choices is not None:
        for choice in action.choices:
            yield str(choice), ""
    elif isinstance(action.metavar, str) and action.metavar in SOURCES:
        yield from SOURCES[action.metavar](netns)


def _after_comma(candidates: Candidates, word: str) -> Candidates:
    """Return the candidates for the last part of a list: ``stop,wake`` for ``stop,``."""
    before, comma, _ = word.rpartition(",")
    taken = before.split(",")
    return ((before + comma + value, text) for value, text in candidates if value not in taken)


class _Line:
    """The state of a command line, up to the word that is completed."""

    def __init__(self) -> None:
        self.netns: str | None = None
        self.waiting: argparse.Action | None = None
        self.typed: list[str] = []
        self.only_positionals = False
        self._enter(cli.top_parser())
        self._positionals = [_COMMAND]

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        self._options = {
            name: action for action in parser._actions for name in action.option_strings
        }
        self._positionals = [action for action in parser._actions if not action.option_strings]

    def take(self, word: str) -> None:
        if self.waiting:
            if self.waiting.dest == "netns":
                self.netns = word
            self.waiting = None
        elif word == "--" and not self.only_positionals:
            self.only_positionals = True
        elif word.startswith("-") and not self.only_positionals:
            self.typed.append(word)
            action = self._options.get(word)
            if action and action.nargs != 0:
                self.waiting = action
        elif self._positionals:
            self.typed.append(word)
            action = self._positionals[0]
            if action.nargs in (None, "?"):
                del self._positionals[0]
            if action is _COMMAND:
                self._command(word)
            elif isinstance(action, argparse._SubParsersAction):
                self._enter(action.choices[word])

    def _command(self, word: str) -> None:
        if "help" in self.typed:
            self._positionals = [_COMMAND] * (word == "help")
            return
        for action in cli.parser(cli.command_of(word))._actions:
            if isinstance(action, argparse._SubParsersAction):
                self._enter(action.choices[word])

    def next(self, word: str) -> Candidates:
        """Return the candidates for the word under the cursor."""
        if self.waiting:
            yield from _after_comma(_values(self.waiting, self.netns), word)
        elif word.startswith("-") and not self.only_positionals:
            for name, action in self._options.items():
                text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
                yield name, text % {**vars(action), "prog": "nodrop"}
        elif self._positionals:
            action = self._positionals[0]
            if action is _COMMAND:
                for command in cli.NODROP.commands:
                    yield command.name, command.summary
                if not self.typed:
                    yield "help", "print the options of a command"
            else:
                yield from (
                    self._setting() if action.dest == "operands" else _values(action, self.netns)
                )

    def _setting(self) -> Candidates:
        """Return the candidates in ``nodrop set``: devices, the setting, its value."""
        names = [word for word in self.typed if word[:1] != "-"][1:]
        default = "--default" in self.typed
        keys = ["backpressure", "stall-ms" if default else "qdisc"]
        if not set(keys) & set(names):
            if not default:
                yield from devices(self.netns)
            if default or names:
                yield from ((key, "") for key in keys)
        elif names[-1] in ("backpressure", "qdisc"):
            keeps = not default and "--now" not in self.typed
            on = "on" if names[-1] == "backpressure" else "fq_codel"
            yield from ((value, "") for value in [on, "off", *(["default"] if keeps else [])])


_COMMAND = argparse.Action([], "command")


def complete(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the candidates for the last word, with descriptions.

    Args:
        words: the words after ``nodrop``.
    """
    parts: list[str] = []
    glued = ""
    for word in words or [""]:
        name, equals, value = word.partition("=")
        glued = f"{name}=" if equals and name.startswith("--") else ""
        parts += [name, value] if glued else [word]
    *before, last = parts
    line = _Line()
    try:
        for word in before:
            line.take(word)
    except (NodropError, KeyError):
        return []
    return [
        (word if word[0] == ":" else glued + word, text)
        for word, text in line.next(last)
        if word.startswith(last) or word[0] == ":"
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the candidates, if any; ``arguments``: the shell, then the words."""
    shell, *words = arguments or [""]
    if shell == "bash":
        # It splits --option=value into three words, and replaces the last one.
        words = [word for word in words if word != "="] + [""] * (words[-1:] == ["="])
    for word, text in complete(words):
        print(f"{word}\t{text}" if text and shell != "bash" else word)
    return 0
