# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a seed of the sweep."""

from __future__ import annotations

import itertools
from dataclasses import asdict

from proof.sweep.pairs import choose
from proof.sweep.rows import NAMES, VALUES, excluded


def test_a_seed_has_every_possible_pair() -> None:
    rows = choose(3)
    assert rows == choose(3) != choose(4)
    assert not any(excluded(asdict(row)) for row in rows)
    seen = {
        (one, other, getattr(row, one), getattr(row, other))
        for row in rows
        for one, other in itertools.combinations(NAMES, 2)
    }
    # Two values may be possible together and yet in no row, if no third value goes with both.
    missing = [
        (one, other, first, second)
        for one, other in itertools.combinations(NAMES, 2)
        for first, second in itertools.product(VALUES[one], VALUES[other])
        if not excluded({one: first, other: second}) and (one, other, first, second) not in seen
    ]
    for one, other, first, second in missing:
        rest = [name for name in NAMES if name not in (one, other)]
        for values in itertools.product(*(VALUES[name] for name in rest if name != "ring")):
            names = [name for name in rest if name != "ring"]
            given = {one: first, other: second, **dict(zip(names, values, strict=True))}
            assert excluded(given), given
