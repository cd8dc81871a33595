# SPDX-License-Identifier: GPL-2.0-only
"""Rates between two samples of a machine.

A device is identified by its namespace and its ifindex. Counters that decreased belong to a new
object, such as a replaced qdisc or a newly opened queue. Their rates are unknown until the next
sample, so no rate is negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nodrop.host.model import GAUGES, Device, Driver, Qdisc, Queue, by_cause, increase

Rates = dict[str, float]
"""Counter -> rate per second; empty: unknown."""

_Counts = Mapping[str, int]
_MS = 1000.0
_SKEW = 0.1
"""Share of the driver's drops that may lack in the device's: they are not read at the same time."""


@dataclass(frozen=True)
class Counts:
    """The counters of a device, in groups that start from 0 together."""

    link: _Counts
    qdisc: _Counts
    queue: Mapping[int, _Counts]
    band: Mapping[int, _Counts]

    @classmethod
    def of(cls, device: Device) -> Counts:
        """Return the counters of a device."""
        return cls(
            link={
                "tx_packets": device.tx_packets,
                "tx_bytes": device.tx_bytes,
                "tx_dropped": device.tx_dropped,
                "rx_packets": device.rx_packets,
                "rx_bytes": device.rx_bytes,
                "rx_dropped": device.rx_dropped,
            },
            qdisc=_qdisc_counts(device.qdisc),
            queue={
                one.index: {name: n for name, n in one.counters.items() if name not in GAUGES}
                for one in device.queue
            },
            band={one.index: _qdisc_counts(one.qdisc) for one in device.queue if one.qdisc},
        )


_NOTHING = Counts({}, {}, {}, {})


def _qdisc_counts(qdisc: Qdisc) -> dict[str, int]:
    counts = {
        "packets": qdisc.sent_packets,
        "bytes": qdisc.sent_bytes,
        "drops": qdisc.drops,
        "requeues": qdisc.requeues,
    }
    if qdisc.ecn_marks is not None:
        counts["ecn_marks"] = qdisc.ecn_marks
    return counts


@dataclass(frozen=True)
class QueueRow:
    """One queue of a device.

    Attributes:
        packets, bytes: passed to the reader, per second; with several queues: taken by the reader,
            or, where the driver does not count that, passed to the driver by mq.
        counters: nodrop's counters, per second.
        qdisc: counters of its qdisc, per second.
        waits: queueing delays.
    """

    queue: Queue
    packets: float | None
    bytes: float | None
    counters: Rates
    qdisc: Rates
    waits: Waits

    @property
    def drops(self) -> Rates:
        """Drops by cause, packets per second."""
        return by_cause(self.counters)


@dataclass(frozen=True)
class Waits:
    """Queueing delays by Little's law, ms: what is queued, divided by the rate of what leaves.

    None: unknown, because nothing leaves, or the driver does not report its ring's packets.
    """

    qdisc_ms: float | None = None
    ring_ms: float | None = None

    @property
    def both_ms(self) -> float | None:
        """Delay in the qdisc and in the ring."""
        if self.qdisc_ms is None or self.ring_ms is None:
            return None
        return self.qdisc_ms + self.ring_ms


@dataclass(frozen=True)
class Row:
    """One device, now.

    Attributes:
        interval_s: time between the samples; None: the device is new.
        link: packets, bytes and drops of the device, per second.
        counters: nodrop's counters, per second, over all queues.
        qdisc: counters of its qdisc, per second.
        drops: drops by cause, packets per second, without the qdisc's.
        queues: its queues; a tunnel has none.
    """

    device: Device
    interval_s: float | None
    link: Rates = field(default_factory=dict)
    counters: Rates = field(default_factory=dict)
    qdisc: Rates = field(default_factory=dict)
    drops: Rates = field(default_factory=dict)
    queues: tuple[QueueRow, ...] = ()
    waits: Waits = field(default_factory=Waits)

    @property
    def dropped(self) -> float | None:
        """Packets per second that the driver dropped; None: unknown."""
        return sum(self.drops.values()) if self.link else None

    @property
    def ring_packets(self) -> int | None:
        """Packets in all rings now; None: the driver does not report them."""
        return self.device.counter("ring")


@dataclass(frozen=True)
class _Before:
    time_s: float
    counts: Counts


class Meter:
    """Stores the last sample, and computes the rates to the next one."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], _Before] = {}

    def rows(self, devices: Iterable[Device], times_s: Mapping[int, float]) -> list[Row]:
        """Return a row for each device.

        Args:
            devices: as they are now.
            times_s: inode of each namespace -> when it was read, monotonic, seconds.
        """
        now: dict[tuple[int, int], _Before] = {}
        rows = []
        for device in devices:
            key = device.netns_inode, device.ifindex
            now[key] = _Before(times_s[device.netns_inode], Counts.of(device))
            rows.append(_row(device, self._before.get(key), now[key]))
        self._before = now
        return rows


def _row(device: Device, before: _Before | None, now: _Before) -> Row:
    link: Rates = {}
    if before:
        link = _rates(before.counts.link, now.counts.link, now.time_s - before.time_s)
    seconds = now.time_s - before.time_s if before and link else 0.0
    was = before.counts if before and link else _NOTHING
    qdisc = _rates(was.qdisc, now.counts.qdisc, seconds)
    queues = _groups(was.queue, now.counts.queue, seconds)
    bands = _groups(was.band, now.counts.band, seconds)
    counters: Rates = {}
    for one in queues.values():
        for name, rate in one.items():
            counters[name] = counters.get(name, 0.0) + rate
    alone = len(device.queue) == 1
    return Row(
        device,
        seconds or None,
        link=link,
        counters=counters,
        qdisc=qdisc,
        drops=_drops(device, link, counters) if link else {},
        queues=tuple(
            _queue(
                one,
                queues[one.index],
                _Flow(link["tx_packets"], link["tx_bytes"]) if alone and link else None,
                one.qdisc or (device.qdisc if alone else None),
                bands.get(one.index, {}) if one.qdisc else qdisc if alone else {},
            )
            for one in device.queue
        ),
        waits=_waits(
            device.qdisc,
            device.counter("ring"),
            _Flow(link["tx_packets"], link["tx_bytes"]) if link else None,
            tunnel=device.tunnel,
        ),
    )


class _Flow(NamedTuple):
    """The rate of what leaves, per second."""

    packets: float
    bytes: float | None


def _groups(
    before: Mapping[int, _Counts], now: Mapping[int, _Counts], s: float
) -> dict[int, Rates]:
    return {index: _rates(before.get(index, {}), counts, s) for index, counts in now.items()}


def _queue(
    queue: Queue, counters: Rates, flow: _Flow | None, below: Qdisc | None, qdisc: Rates
) -> QueueRow:
    """Return a queue's row.

    Args:
        flow: the device's rate, if this is its only queue; None: use what the reader took from it,
            and the rate of its qdisc below mq.
    """
    if flow is None and queue.qdisc and qdisc:
        flow = _Flow(counters.get("taken", qdisc["packets"]), qdisc["bytes"])
    elif flow is None and "taken" in counters:
        flow = _Flow(counters["taken"], None)
    return QueueRow(
        queue,
        flow.packets if flow else None,
        flow.bytes if flow else None,
        counters,
        qdisc,
        _waits(below, queue.ring_packets, flow),
    )


def _rates(before: _Counts, now: _Counts, seconds: float) -> Rates:
    """Return the rates of a group of counters; empty if the group is new."""
    if seconds <= 0 or not before:
        return {}
    differences = {name: increase(name, before[name], now[name]) for name in now if name in before}
    if any(difference < 0 for difference in differences.values()):
        return {}
    return {name: difference / seconds for name, difference in differences.items()}


def _drops(device: Device, link: Rates, counters: Rates) -> Rates:
    """Return the drops by cause; other drivers than nodrop's only have the cause "ring".

    nodrop's driver counts drops at the ring by cause; "other": no reader, a filter, no memory.
    """
    found = by_cause(counters)
    explained = sum(found.values())
    rest = max(link["tx_dropped"] - explained, 0.0)
    if rest < _SKEW * explained:
        rest = 0.0
    if device.tunnel:
        return {"tunnel": rest}
    if device.driver in (Driver.NODROP, Driver.LIVE):
        return {**found, "other": rest}
    return {"ring": rest}


def _waits(
    qdisc: Qdisc | None, ring_packets: int | None, flow: _Flow | None, *, tunnel: bool = False
) -> Waits:
    """Return the delays; unknown for a tunnel without a qdisc, which queues nothing itself."""
    if flow is None or (tunnel and qdisc and qdisc.kind in ("noqueue", "noop")):
        return Waits()
    return Waits(
        qdisc_ms=_wait(qdisc.queued_bytes if qdisc else None, flow.bytes),
        ring_ms=_wait(0 if tunnel else ring_packets, flow.packets),
    )


def _wait(queued: int | None, per_second: float | None) -> float | None:
    if queued == 0:
        return 0.0
    if queued is None or not per_second:
        return None
    return queued / per_second * _MS
