# SPDX-License-Identifier: GPL-2.0-only
"""Which rows a seed has: each pair of values of two parameters at least once, if it can be.

And what makes a row that fails plainer.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict

from proof.sweep.rows import ABOVE, NAMES, RULES, VALUES, Row, excluded

ROWS = 250
TRIES = 3
"""How many rows are made for each that is taken."""
Pair = tuple[str, str, str, str]
"""Two parameters and their values."""
_GO_ON = ("one", "flood")
_PLACE = {name: place for place, name in enumerate(NAMES)}


def _pair(one: str, first: str, other: str, second: str) -> Pair:
    if _PLACE[one] < _PLACE[other]:
        return (one, other, first, second)
    return (other, one, second, first)


def _gain(given: dict[str, str], name: str, value: str, wanted: dict[Pair, None]) -> int:
    """How many wanted pairs a value makes with those that are there."""
    return sum(_pair(name, value, *other) in wanted for other in given.items())


def _complete(
    given: dict[str, str], wanted: dict[Pair, None], chance: random.Random
) -> dict[str, str]:
    """Add what is missing, each time the value that makes most wanted pairs; {}: it cannot be."""
    # What most rules are about first: later there is less to take back.
    name = max(NAMES, key=lambda name: len(RULES[name]) * (name not in given))
    if name in given:
        free = [name for name in NAMES if name not in given]
        if not free:
            return given
        name = chance.choice(free)
    values = list(VALUES[name])
    chance.shuffle(values)
    if wanted:
        values.sort(key=lambda value: -_gain(given, name, value, wanted))
    for value in values:
        more = given | {name: value}
        if not excluded(more, name) and (whole := _complete(more, wanted, chance)):
            return whole
    return {}


def choose(seed: int) -> list[Row]:
    """Return a seed's rows: all pairs, then more of what pairs leave out, then any."""
    chance = random.Random(seed)
    # In the order in which they were added: a set's depends on the process.
    wanted: dict[Pair, None] = {}
    for one, other in itertools.combinations(NAMES, 2):
        for first, second in itertools.product(VALUES[one], VALUES[other]):
            if not excluded({one: first, other: second}):
                wanted[one, other, first, second] = None
    rows: list[Row] = []
    while wanted:
        one, other, first, second = next(iter(wanted))
        made = [_complete({one: first, other: second}, wanted, chance) for _ in range(TRIES)]

        def new(whole: dict[str, str]) -> int:
            return sum(_pair(*a, *b) in wanted for a, b in itertools.combinations(whole.items(), 2))

        best = max(made, key=new)
        # No row has this pair: values that go together two by two do not in threes.
        wanted.pop((one, other, first, second))
        for a, b in itertools.combinations(best.items(), 2):
            wanted.pop(_pair(*a, *b), None)
        if best:
            rows.append(Row(**best))
    # Frames that no socket is charged with have nothing but the ring: each length of it.
    for kind, ring in itertools.product(ABOVE, VALUES["ring"]):
        given = {"kind": kind, "ring": ring, "sender": "forwarded", "pace": chance.choice(_GO_ON)}
        rows.append(Row(**_complete(given, {}, chance)))
    kinds = itertools.cycle(VALUES["kind"])
    while len(rows) < ROWS:
        rows.append(Row(**_complete({"kind": next(kinds)}, {}, chance)))
    chance.shuffle(rows)
    return rows


def plainer(row: Row) -> Iterator[tuple[str, Row]]:
    """Give the row with each of its parameters at its plainest, where that can be, and which."""
    for name in NAMES:
        plain = asdict(row) | {name: VALUES[name][0]}
        if plain != asdict(row) and not excluded(plain):
            yield name, Row(**plain)


def shrink(row: Row, fails: Callable[[Row], bool]) -> Row:
    """Return a row that fails as well, with as few parameters as can be that are not plain."""
    tried: set[str] = set()
    while True:
        left = [(name, other) for name, other in plainer(row) if name not in tried]
        if not left:
            return row
        name, other = left[0]
        tried.add(name)
        if fails(other):
            row = other
