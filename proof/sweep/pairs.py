# SPDX-License-Identifier: GPL-2.0-only
"""Choose a seed's rows, with each possible pair of values of two parameters at least once.

Also shrink rows that fail.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict

from proof.sweep.rows import ABOVE, NAMES, RULES, VALUES, Row, excluded

ROWS = 250
TRIES = 3
"""Candidates for each row."""
Pair = tuple[str, str, str, str]
"""Two parameters and their values."""
_GO_ON = ("one", "flood")
_PLACE = {name: place for place, name in enumerate(NAMES)}


def _pair(one: str, first: str, other: str, second: str) -> Pair:
    if _PLACE[one] < _PLACE[other]:
        return (one, other, first, second)
    return (other, one, second, first)


def _gain(given: dict[str, str], name: str, value: str, wanted: dict[Pair, None]) -> int:
    """Return how many wanted pairs a value makes with the given ones."""
    return sum(_pair(name, value, *other) in wanted for other in given.items())


def _complete(
    given: dict[str, str], wanted: dict[Pair, None], chance: random.Random
) -> dict[str, str]:
    """Complete a row, with the value that makes most wanted pairs each time; {}: impossible."""
    # Parameters with most rules first: less backtracking.
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
    """Return a seed's rows, shuffled: all pairs, all rings for forwarded frames, random ones."""
    chance = random.Random(seed)
    # A dict, as the order of a set depends on the process.
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
        # Without a row the pair is impossible: its other values exclude each other.
        wanted.pop((one, other, first, second))
        for a, b in itertools.combinations(best.items(), 2):
            wanted.pop(_pair(*a, *b), None)
        if best:
            rows.append(Row(**best))
    # Only the ring can queue uncharged frames: try each length.
    for kind, ring in itertools.product(ABOVE, VALUES["ring"]):
        given = {"kind": kind, "ring": ring, "sender": "forwarded", "pace": chance.choice(_GO_ON)}
        rows.append(Row(**_complete(given, {}, chance)))
    kinds = itertools.cycle(VALUES["kind"])
    while len(rows) < ROWS:
        rows.append(Row(**_complete({"kind": next(kinds)}, {}, chance)))
    chance.shuffle(rows)
    return rows


def plainer(row: Row) -> Iterator[tuple[str, Row]]:
    """Yield each parameter and the row with it at its plainest value, where possible."""
    for name in NAMES:
        plain = asdict(row) | {name: VALUES[name][0]}
        if plain != asdict(row) and not excluded(plain):
            yield name, Row(**plain)


def shrink(row: Row, fails: Callable[[Row], bool]) -> Row:
    """Return a failing row with as many plain parameters as possible."""
    tried: set[str] = set()
    while True:
        left = [(name, other) for name, other in plainer(row) if name not in tried]
        if not left:
            return row
        name, other = left[0]
        tried.add(name)
        if fails(other):
            row = other
