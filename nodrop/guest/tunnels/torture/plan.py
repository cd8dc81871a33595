# SPDX-License-Identifier: GPL-2.0-only
"""What happens to a tunnel, and when: the same for the same seed.

A plan is rounds without end. A round is a place with a tunnel, bouts of events, and a way to
end. After each bout all is undone, and packets have to flow again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Ending(StrEnum):
    """What goes first at the end of a round, while the senders still send."""

    TUNNEL = "tunnel"
    LOWER = "lower"
    NEAR = "near"
    """The namespace of the device below the tunnel."""
    FAR = "far"
    APART = "apart"
    """The namespace of the tunnel, where it is not that of the device below."""


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        number: counted through all rounds, from 1.
        kind: its name.
        value: what it makes its choices by.
        span: it is undone when so many others have happened.
        gap_ms: the pause after it.
    """

    number: int
    kind: str
    value: int
    span: int
    gap_ms: int


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes:
        apart: the tunnel and its senders are in another namespace than the device below.
        hammer: a process changes the route to the far end as fast as it can.
        icmp: a process at the far end sends ICMP errors as fast as it can.
        cryptd: ESP's ciphers end in another context, later.
        value: what senders and hammers make their choices by.
    """

    number: int
    apart: bool
    hammer: bool
    icmp: bool
    cryptd: bool
    ending: Ending
    value: int
    bouts: tuple[tuple[Event, ...], ...]


_BOUTS = 2
_EVENTS = 12


def rounds(seed: int, kinds: Sequence[str]) -> Iterator[Round]:
    """Give the rounds of a seed.

    Args:
        kinds: of events, in an order of their own.
    """
    number = event = 0
    while True:
        chance = random.Random(f"{seed}/{number}")
        apart = chance.random() < 0.4
        endings = [ending for ending in Ending if apart or ending is not Ending.APART]
        bouts = []
        for _ in range(_BOUTS):
            # Not the same twice, as long as there are others.
            times = -(-_EVENTS // len(kinds))
            chosen = chance.sample(list(kinds) * times, _EVENTS)
            bout = []
            for kind in chosen:
                event += 1
                gap = chance.choice((0, 5, 20, 60, 150))
                bout.append(
                    Event(event, kind, chance.getrandbits(48), chance.choice((0, 1, 2, 4)), gap)
                )
            bouts.append(tuple(bout))
        yield Round(
            number,
            apart,
            hammer=chance.random() < 0.6,
            icmp=chance.random() < 0.6,
            cryptd=chance.random() < 0.5,
            ending=chance.choice(endings),
            value=chance.getrandbits(48),
            bouts=tuple(bouts),
        )
        number += 1
