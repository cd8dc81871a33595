# SPDX-License-Identifier: GPL-2.0-only
"""Counters of a device, and their increase between two samples.

Counters are in groups that start from 0 together: the device's, its qdisc's, each queue's, and
those of each queue's qdisc below mq. If a counter of a group has decreased, the group belongs to a
new object, such as a replaced qdisc or a newly opened queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

GAUGES = frozenset({"ring", "limit", "pace_ns", "stalled_ms"})
"""A queue's statistics that are not counters: packets in the ring, its limit, the reader's time per
packet, and the time since it was found stalled."""
WRAPS = frozenset({"taken"})
"""A queue's counters that are modulo 2^32. They alone do not show a new queue: vhost-net puts
packets back, which decreases them."""
_HALF = 1 << 31
_NAME = re.compile(r"[tr]x(?P<queue>\d+)_(?P<name>\w+)")

Number = TypeVar("Number", int, float)
Counts = Mapping[str, int]


@lru_cache(8192)
def parse_name(name: str) -> tuple[int, str] | None:
    """Return the queue and counter of a name of ``ethtool -S``: ``tx0_stops``; None: not nodrop's.

    Most devices have the same ones, hence the cache.
    """
    match = _NAME.fullmatch(name)
    return (int(match["queue"]), match["name"]) if match else None


def by_queue(stats: Counts) -> dict[int, dict[str, int]]:
    queues: dict[int, dict[str, int]] = {}
    for name, value in stats.items():
        if parsed := parse_name(name):
            queues.setdefault(parsed[0], {})[parsed[1]] = value
    return queues


def total(queues: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """Return the sums of counters, or of their rates, over queues."""
    sums: dict[str, Number] = {}
    for counts in queues:
        for name, value in counts.items():
            sums[name] = sums[name] + value if name in sums else value
    return sums


def by_cause(counts: Mapping[str, Number]) -> dict[str, Number]:
    """Return nodrop's counters of dropped packets by cause, of all its counters or their rates."""
    return {
        name.removeprefix("drop_"): value
        for name, value in counts.items()
        if name.startswith("drop_")
    }


def wait_ms(queued: int | None, per_second: float | None) -> float | None:
    """Return how long the last of what is queued waits, ms; None: unknown, or nothing leaves."""
    if queued == 0:
        return 0.0
    if queued is None or not per_second:
        return None
    return queued / per_second * 1e3


def increase(before: Counts, now: Counts) -> dict[str, int] | None:
    """Return the increase of a group's counters; None: the group is new.

    One of WRAPS that decreased has wrapped, if that makes less than half of its range; otherwise
    its increase is unknown.
    """
    result = {}
    for name, value in now.items():
        if name not in before or name in GAUGES:
            continue
        grown = value - before[name]
        if name in WRAPS:
            grown = (grown + _HALF) % (2 * _HALF) - _HALF
            if grown < 0:
                continue
        elif grown < 0:
            return None
        result[name] = grown
    return result or None


@dataclass(frozen=True)
class Counters:
    """The counters of a device, or their increase.

    Attributes:
        link: of the device, named as in ``ip -s link``: ``tx_packets``.
        qdisc: of its root qdisc; ``qdisc_kind`` identifies it.
        queues: nodrop's counters of each queue, by index.
        bands: of each queue's qdisc below mq, by the queue's index.
    """

    link: Counts = field(default_factory=dict)
    qdisc: Counts = field(default_factory=dict)
    queues: Mapping[int, Counts] = field(default_factory=dict)
    bands: Mapping[int, Counts] = field(default_factory=dict)
    qdisc_kind: str = ""

    def since(self, before: Counters, *, from_zero: bool = False) -> Counters:
        """Return the increase since an earlier sample of the same device.

        Args:
            from_zero: count a new group from 0; otherwise its increase is empty: unknown.
        """

        def grown(old: Counts, now: Counts) -> Counts:
            result = increase(old, now)
            if result is None and from_zero:
                result = increase(dict.fromkeys(now, 0), now)
            return result or {}

        link = grown(before.link, self.link)
        if self.link and not link:
            return Counters(qdisc_kind=self.qdisc_kind)
        same = self.qdisc_kind == before.qdisc_kind
        return Counters(
            link=link,
            qdisc=grown(before.qdisc if same else {}, self.qdisc),
            queues={
                index: grown(before.queues.get(index, {}), counts)
                for index, counts in self.queues.items()
            },
            bands={
                index: grown(before.bands.get(index, {}), counts)
                for index, counts in self.bands.items()
            },
            qdisc_kind=self.qdisc_kind,
        )
