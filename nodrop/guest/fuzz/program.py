# SPDX-License-Identifier: GPL-2.0-only
"""A program of system calls, and what its calls are given.

What a call means is in the grammar; here is only its form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

HERE, AWAY = -2, -1
"""As ``Ref``: the network namespace that a program begins in, and another one."""


@dataclass(frozen=True)
class Ref:
    """What an earlier call has made.

    Attributes:
        call: its number in the program; HERE or AWAY.
    """

    call: int


@dataclass(frozen=True)
class Data:
    """Bytes that are made when they are needed (:mod:`nodrop.guest.fuzz.packets`).

    Attributes:
        kind: what they begin like.
        size: how many there are.
    """

    kind: str
    size: int


Value = int | str | Ref | Data
"""An argument. Text is the name of a device."""


class Where(StrEnum):
    """Where the memory is that a call is given."""

    FINE = ""
    NULL = "null"
    BAD = "bad"
    """There is none."""
    EDGE = "edge"
    """It ends after some bytes."""


@dataclass(frozen=True)
class Call:
    """A call.

    Attributes:
        name: in the grammar.
        aside: the next one does not wait for it.
        times: how often it is made, until it fails.
    """

    name: str
    values: tuple[Value, ...]
    aside: bool = False
    where: Where = Where.FINE
    times: int = 1

    def refs(self) -> tuple[int, ...]:
        """Return the numbers of the calls whose results it uses."""
        return tuple(value.call for value in self.values if isinstance(value, Ref))

    def with_refs(self, change: Callable[[int], Value]) -> Call:
        """Return it with other arguments in place of earlier results, but for HERE and AWAY."""
        values = tuple(
            change(value.call) if isinstance(value, Ref) and value.call >= 0 else value
            for value in self.values
        )
        return replace(self, values=values)


Program = tuple[Call, ...]


def moved(calls: Sequence[Call], first: int, by: int) -> list[Call]:
    """Return calls whose references to the calls from ``first`` on are to others behind them."""

    def change(number: int) -> Value:
        return Ref(number + by) if number >= first else Ref(number)

    return [call.with_refs(change) for call in calls]


def without(program: Program, number: int, instead: Value = -1) -> Program:
    """Return a program without one of its calls.

    Args:
        instead: what those get that used its result.
    """

    def change(used: int) -> Value:
        if used == number:
            return instead
        return Ref(used - 1) if used > number else Ref(used)

    behind = [call.with_refs(change) for call in program[number + 1 :]]
    return (*program[:number], *behind)
