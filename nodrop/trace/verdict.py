# SPDX-License-Identifier: GPL-2.0-only
"""Traced drops, compared with the device's counters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodrop.trace import reasons
from nodrop.trace.counters import Counters
from nodrop.trace.reasons import Way
from nodrop.trace.tracer import Counted, Site, Target

_SLACK_SHARE = 0.05
_SLACK_PACKETS = 5
"""Tolerated difference of trace and counters, which do not start and end at the same time."""


@dataclass(frozen=True)
class Drop:
    """Packets that were dropped at one site for one reason."""

    site: Site
    packets: int
    way: Way | None
    meaning: str
    advice: str


@dataclass(frozen=True)
class Verdict:
    """The drops of a device in an interval.

    Attributes:
        target: the device.
        netns: name of its network namespace; "": the caller's.
        tracer: name of the tracer.
        device_known: whether only the device's packets were counted.
        interval_s: duration, seconds.
        drops: the most frequent first.
        unseen: number of events that the tracer could not read.
        counters: the device's counters; None: it was deleted or created again meanwhile.
    """

    target: Target
    netns: str
    tracer: str
    device_known: bool
    interval_s: float
    drops: Sequence[Drop]
    unseen: int
    counters: Counters | None

    @property
    def packets(self) -> int:
        """All traced drops."""
        return sum(drop.packets for drop in self.drops)

    def traced(self, way: Way) -> int:
        """Return the traced drops that were, or may have been, in a direction."""
        return sum(drop.packets for drop in self.drops if drop.way in (way, None))

    def counted(self, way: Way) -> int | None:
        """Return the drops that the device and its qdisc counted in a direction."""
        if self.counters is None:
            return None
        if way is Way.RECEIVE:
            return self.counters.rx_dropped
        return self.counters.tx_dropped + self.counters.qdisc_drops

    def unexplained(self, way: Way) -> int | None:
        """Return the drops that were counted but not traced; None: unknown."""
        counted = self.counted(way)
        if counted is None or not self.device_known:
            return None
        missing = counted - self.traced(way)
        return missing if missing > max(_SLACK_PACKETS, _SLACK_SHARE * counted) else 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the command prints (nodrop/schemas/drops.json)."""
        return {
            "device": self.target.name,
            "ifindex": self.target.ifindex,
            "netns": self.netns or None,
            "tracer": self.tracer,
            "device_known": self.device_known,
            "interval_s": round(self.interval_s, 3),
            "packets": self.packets,
            "unseen_packets": self.unseen,
            "drops": [self._drop(drop) for drop in self.drops],
            "counters": self._counters(),
            "unexplained": {
                "transmit_packets": self.unexplained(Way.TRANSMIT),
                "receive_packets": self.unexplained(Way.RECEIVE),
            },
        }

    def _drop(self, drop: Drop) -> dict[str, Any]:
        return {
            "packets": drop.packets,
            "share": round(drop.packets / self.packets, 4),
            "direction": drop.way and str(drop.way),
            "reason": drop.site.reason or None,
            "location": drop.site.where,
            "module": drop.site.module or None,
            "meaning": drop.meaning or None,
            "advice": drop.advice or None,
        }

    def _counters(self) -> dict[str, Any] | None:
        found = self.counters
        if found is None:
            return None
        return {
            "tx_dropped_packets": found.tx_dropped,
            "rx_dropped_packets": found.rx_dropped,
            "qdisc": found.qdisc,
            "qdisc_dropped_packets": found.qdisc_drops,
            "qdisc_over_limit_packets": found.qdisc_over_limit,
            "nodrop_dropped_packets": found.drops_by_cause or None,
            "guard_trips": found.nodrop("guard_trips"),
        }


def conclude(counted: Counted, device: str, causes: Mapping[str, int]) -> list[Drop]:
    """Return the drops with their explanations, the most frequent first.

    Args:
        device: name to insert into the advice.
        causes: nodrop's own drops by cause; empty for other drivers.
    """
    drops = []
    for site, packets in sorted(counted.packets.items(), key=lambda one: (-one[1], one[0].where)):
        rule = reasons.explain(site, causes)
        drops.append(
            Drop(
                site=site,
                packets=packets,
                way=reasons.way(site),
                meaning=rule.meaning if rule else "",
                advice=rule.advice.replace("DEV", shlex.quote(device)) if rule else "",
            )
        )
    return drops
