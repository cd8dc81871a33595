# SPDX-License-Identifier: GPL-2.0-only
r"""The text form of programs: a call a line, as people read and write it.

::

    # what is behind a # is nobody's business
    r0 = open_tun(RDWR|NONBLOCK)
    tunsetiff(r0, "fz0", TAP|NO_PI)
    & read(r0, 1500) *20
    tunsetqueue(r0, DETACH) @edge

``&``: the next call does not wait for it. ``*20``: so often, until it fails. ``@``: where its
memory is (:class:`nodrop.guest.fuzz.program.Where`). ``eth4/60`` are 60 bytes that begin like
that. An empty line ends a program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nodrop.guest.fuzz.calls import SPECS, kind_of, mistake
from nodrop.guest.fuzz.grammar import Param
from nodrop.guest.fuzz.packets import KINDS
from nodrop.guest.fuzz.program import AWAY, HERE, Call, Data, Program, Ref, Value, Where

_SPACES = {HERE: "here", AWAY: "away"}
_NAMED = {name: number for number, name in _SPACES.items()}
_CALL = re.compile(
    r"(?P<aside>&)?\s*(?:(?P<label>r\d+)\s*=\s*)?(?P<name>\w+)\((?P<args>.*)\)"
    r"(?:\s*\*(?P<times>\d+))?(?:\s*@(?P<where>\w+))?"
)
_COMMENT = re.compile(r"\s*#.*")


_DECIMAL = 100_000
"""Larger numbers are written in hexadecimal."""


class FormError(ValueError):
    """A text is no program; says which line and why."""


def render(program: Program) -> str:
    """Return a program's text, with a newline at its end."""
    return "".join(f"{_line(program, number)}\n" for number in range(len(program)))


def _line(program: Program, number: int) -> str:
    call = program[number]
    values = zip(call.values, SPECS[call.name].params, strict=True)
    return "".join(
        (
            "& " if call.aside else "",
            f"r{number} = " if kind_of(program, number) else "",
            f"{call.name}({', '.join(_value(value, param) for value, param in values)})",
            f" *{call.times}" if call.times > 1 else "",
            f" @{call.where}" if call.where else "",
        )
    )


def _value(value: Value, param: Param) -> str:
    match value:
        case Ref(call):
            return _SPACES.get(call, f"r{call}")
        case Data(kind, size):
            return f"{kind}/{size}"
        case str():
            return f'"{value}"'
    return _number(value, param.words())


def _number(value: int, words: Mapping[str, int]) -> str:
    """Return a number by the names of its bits, or of all of it."""
    if not words or value < 0:
        return str(value) if abs(value) < _DECIMAL else hex(value)
    for name, whole in words.items():
        if value == whole:
            return name
    found, rest = [], value
    for name, bits in words.items():
        if bits and rest & bits == bits:
            found.append(name)
            rest &= ~bits
    return "|".join([*found, hex(rest)] if rest or not found else found)


def parse(text: str) -> Program:
    """Return the program of a text.

    Raises:
        FormError: it is none, or several.
    """
    programs = parse_all(text)
    if len(programs) != 1:
        raise FormError(f"{len(programs)} programs where one is expected")
    return programs[0]


def parse_all(text: str) -> list[Program]:
    """Return the programs of a text, which empty lines part.

    Raises:
        FormError: there is a line that is no call.
    """
    programs: list[Program] = []
    for part in re.split(r"\n\s*\n", text):
        lines = [_COMMENT.sub("", line).strip() for line in part.splitlines()]
        if calls := [line for line in lines if line]:
            programs.append(_program(calls))
    return programs


def _program(lines: Sequence[str]) -> Program:
    calls: list[Call] = []
    labels = dict(_NAMED)
    for line in lines:
        match = _CALL.fullmatch(line)
        if not match or match["name"] not in SPECS:
            raise FormError(f"no call: {line}")
        spec = SPECS[match["name"]]
        words = re.split(r"\s*,\s*", match["args"].strip()) if match["args"].strip() else []
        if len(words) != len(spec.params):
            raise FormError(f"{spec.name} takes {len(spec.params)} arguments: {line}")
        try:
            values = tuple(
                _parse_value(word, param, labels)
                for word, param in zip(words, spec.params, strict=True)
            )
            where = Where(match["where"] or "")
        except ValueError as error:
            raise FormError(f"{error}: {line}") from error
        times = int(match["times"] or 1)
        calls.append(Call(spec.name, values, bool(match["aside"]), where, times))
        if match["label"]:
            labels[match["label"]] = len(calls) - 1
    if wrong := mistake(tuple(calls)):
        raise FormError(wrong)
    return tuple(calls)


def _parse_value(word: str, param: Param, labels: Mapping[str, int]) -> Value:
    if word in labels:
        return Ref(labels[word])
    if re.fullmatch(r'"[^"]*"', word):
        return word[1:-1]
    kind, slash, size = word.partition("/")
    if slash:
        if kind not in KINDS:
            raise ValueError(f"no bytes begin like {kind}")
        return Data(kind, int(size))
    names = param.words()
    total = 0
    for part in word.split("|"):
        total |= names[part] if part in names else int(part, 0)
    return total
