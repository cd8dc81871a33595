# SPDX-License-Identifier: GPL-2.0-only
"""Finds the shortest program that still does what a longer one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nodrop.guest.fuzz.mutate import drop
from nodrop.guest.fuzz.program import Program, Where

FirstFailing = Callable[[Sequence[Program]], int | None]
"""Says which of several programs is the first that fails."""


def simpler(program: Program) -> Iterator[Program]:
    """Give programs that are simpler than this one, the much simpler ones first."""
    size = len(program)
    for length in (size // 2, size * 3 // 4):
        if 0 < length < size:
            yield program[:length]
    for number in reversed(range(size)):
        if size > 1:
            yield drop(program, number)
    for number, call in enumerate(program):
        plainer = (
            replace(call, aside=False),
            replace(call, times=1),
            replace(call, where=Where.FINE),
        )
        for plain in plainer:
            if plain != call:
                yield (*program[:number], plain, *program[number + 1 :])


def shorten(program: Program, first_failing: FirstFailing, rounds: int) -> Program:
    """Return the simplest program found that still fails.

    Args:
        rounds: how often somebody may be asked, at most.
    """
    for _ in range(rounds):
        candidates = list(simpler(program))
        at = first_failing(candidates) if candidates else None
        if at is None:
            break
        program = candidates[at]
    return program
