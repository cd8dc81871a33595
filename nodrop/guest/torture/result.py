# SPDX-License-Identifier: GPL-2.0-only
"""What a run of the torture has done and seen, as it is kept."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nodrop.guest.torture.balance import Sums
from nodrop.guest.torture.plan import Event, Round

SCHEMA = 2
LOOKS = frozenset({"calm", "stats"})
"""Events that change nothing."""
LAST = 50
"""Events that a report of a violation shows."""


@dataclass(frozen=True)
class Happened:
    """An event, and when it began: seconds since the run's start."""

    event: Event
    at_s: float

    def __str__(self) -> str:
        event = self.event
        return f"{event.number} {self.at_s:.3f}s {event.kind} {event.value:#x} span {event.span}"


@dataclass
class Result:
    """The run so far.

    Attributes:
        first_round: the number of the round that it began with.
        label: what whoever started it calls it, such as the kernel's flavour.
        argv: the words that it was started with.
        source: the digest of drivers, programs and torture (nodrop.bench.source).
        events: how often each kind of event happened.
        idle: how often one found nothing to do; not among the others.
        packets: sent, delivered, freed ... of all rounds that were accounted for.
        drops: what the driver counted as dropped, by its causes; a queue that was closed has
            taken with it what it counted.
        readers: packets that each kind of reader read.
        survived: kind of reader -> kind of event -> how often both met, and all was accounted for.
        violation: what is wrong; "": nothing.
        ended: the run came to its end; otherwise nobody has looked for leaks.
        slab_kb: unreclaimable slab after the first round and at the end, kB.
    """

    seed: int
    first_round: int
    driver: str
    label: str = ""
    argv: list[str] = field(default_factory=list)
    source: str = ""
    started: float = field(default_factory=time.monotonic)
    rounds: int = 0
    last_event: int = 0
    events: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    packets: Counter[str] = field(default_factory=Counter)
    drops: Counter[str] = field(default_factory=Counter)
    readers: Counter[str] = field(default_factory=Counter)
    survived: dict[str, Counter[str]] = field(default_factory=dict)
    violation: str = ""
    ended: bool = False
    round: Round | None = None
    slab_kb: list[int] = field(default_factory=list)
    last: deque[Happened] = field(default_factory=lambda: deque(maxlen=LAST))
    _pending: list[tuple[str, str]] = field(default_factory=list)

    def begins(self, event: Event) -> None:
        """An event is about to happen."""
        self.last.append(Happened(event, time.monotonic() - self.started))
        self.last_event = event.number

    def happened(self, event: Event, readers: frozenset[str]) -> None:
        """It happened to readers of these kinds; empty: it found nothing to do."""
        (self.events if readers else self.idle)[event.kind] += 1
        self._pending += [(reader, event.kind) for reader in readers]

    def settled(self) -> None:
        """All is accounted for: the events since the last time were survived."""
        for reader, kind in self._pending:
            self.survived.setdefault(reader, Counter())[kind] += 1
        self._pending.clear()

    def round_ends(self, plan: Round, sums: Sums, counters: Mapping[str, int]) -> None:
        """A round ended well; the driver has these counters."""
        for name, value in counters.items():
            cause = name.partition("_")[2]
            if value and cause.startswith("drop_"):
                self.drops[cause] += value
        self.rounds += 1
        self.modes[plan.mode] += 1
        self.packets.update(asdict(sums))

    @property
    def life_events(self) -> int:
        """How many events were more than a look."""
        return sum(count for kind, count in self.events.items() if kind not in LOOKS)

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return time.monotonic() - self.started

    def to_json(self) -> dict[str, Any]:
        """Return it as it is kept."""
        return {
            "schema": SCHEMA,
            "kernel": os.uname().release,
            "driver": self.driver,
            "label": self.label,
            "argv": self.argv,
            "source": self.source,
            "seed": self.seed,
            "first_round": self.first_round,
            "rounds": self.rounds,
            "duration_s": round(self.seconds, 1),
            "last_event": self.last_event,
            "events": self.life_events,
            "events_by_kind": dict(sorted(self.events.items())),
            "events_idle": dict(sorted(self.idle.items())),
            "rounds_by_mode": dict(sorted(self.modes.items())),
            "packets": dict(self.packets),
            "driver_drops": dict(sorted(self.drops.items())),
            "packets_by_reader": dict(sorted(self.readers.items())),
            "survived": {kind: dict(sorted(events.items())) for kind, events in self._table()},
            "slab_kb": self.slab_kb,
            "ended": self.ended,
            "violation": self.violation,
            "round": asdict(self.round) | {"bouts": []} if self.violation and self.round else None,
            "last_events": [str(happened) for happened in self.last] if self.violation else [],
        }

    def _table(self) -> list[tuple[str, Counter[str]]]:
        return sorted(self.survived.items())
