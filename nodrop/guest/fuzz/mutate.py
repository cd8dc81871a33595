# SPDX-License-Identifier: GPL-2.0-only
"""Makes programs out of others."""

from __future__ import annotations

import random
from dataclasses import replace

from nodrop.guest.fuzz.build import MOST, Builder
from nodrop.guest.fuzz.calls import SPECS, kind_of, references
from nodrop.guest.fuzz.grammar import Fd
from nodrop.guest.fuzz.program import Call, Program, Value, Where, moved, without


def mutate(rng: random.Random, program: Program, other: Program) -> Program:
    """Return a program with one to four changes.

    Args:
        other: what may be joined to it.
    """
    for _ in range(rng.choice((1, 1, 2, 4))):
        way = rng.choices((insert, remove, change, race, toggle, join), (8, 4, 8, 4, 3, 2))[0]
        program = way(rng, program, other) if program else insert(rng, program, other)
    return program


def insert(rng: random.Random, program: Program, _other: Program) -> Program:
    """Insert a call somewhere, and what it needs."""
    at = rng.randint(0, len(program))
    builder = Builder(rng, program[:at])
    builder.any_call()
    return _fitted((*builder.calls, *moved(program[at:], at, len(builder.calls) - at)))


def remove(rng: random.Random, program: Program, _other: Program) -> Program:
    """Remove a call; those that used its result get something like it."""
    return drop(program, rng.randrange(len(program)))


def drop(program: Program, number: int) -> Program:
    """Return a program without a call; what was like its result before it takes its place."""
    kind = kind_of(program, number)
    there = references(program, number, (kind,)) if kind else []
    return without(program, number, there[-1] if there else -1)


def change(rng: random.Random, program: Program, _other: Program) -> Program:
    """Change an argument."""
    number = rng.randrange(len(program))
    call = program[number]
    params = SPECS[call.name].params
    if not params:
        return program
    at = rng.randrange(len(params))
    param, value = params[at], call.values[at]
    fresh: Value
    if isinstance(param, Fd):
        there = references(program, number, param.kinds)
        fresh = rng.choice(there) if there and rng.random() < 0.9 else param.choose(rng)
    else:
        fresh = param.change(rng, value)
    return _with(program, number, replace(call, values=_set(call.values, at, fresh)))


def race(rng: random.Random, program: Program, _other: Program) -> Program:
    """Make a call twice at the same time, or at the same time as the next one."""
    number = rng.randrange(len(program))
    call = program[number]
    if rng.random() < 0.5:
        return _with(program, number, replace(call, aside=True))
    twin = replace(call, aside=True)
    behind = moved(program[number:], number, 1)
    return _fitted((*program[:number], twin, *behind))


def toggle(rng: random.Random, program: Program, _other: Program) -> Program:
    """Change how a call is made: awaited or not, how often, with which memory."""
    number = rng.randrange(len(program))
    call = program[number]
    draw = rng.random()
    if draw < 0.4:
        call = replace(call, aside=not call.aside)
    elif draw < 0.7 and SPECS[call.name].repeats:
        call = replace(call, times=rng.choice((1, 3, 10, 100)))
    else:
        call = replace(call, where=rng.choice(tuple(Where)))
    return _with(program, number, call)


def join(rng: random.Random, program: Program, other: Program) -> Program:
    """Go on with another program after some of the calls."""
    at = rng.randint(1, len(program))
    return _fitted((*program[:at], *moved(other, 0, at)))


def _with(program: Program, number: int, call: Call) -> Program:
    return (*program[:number], call, *program[number + 1 :])


def _set(values: tuple[Value, ...], at: int, value: Value) -> tuple[Value, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _fitted(calls: tuple[Call, ...]) -> Program:
    """Cut off what is too much; nothing refers to what comes later."""
    return calls[:MOST]
