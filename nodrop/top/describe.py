# SPDX-License-Identifier: GPL-2.0-only
"""One refresh as JSON: units in the keys, null for unknown values (docs/guide.md)."""

from __future__ import annotations

from typing import Any

from nodrop.host.describe import owner
from nodrop.host.model import Qdisc
from nodrop.top.rates import QueueRow, Rates, Row, Waits

_COUNTERS = ("stops", "stops_limit", "wakes", "kicks", "kicks_here", "guard_trips")


def row(found: Row, *, queues: bool) -> dict[str, Any]:
    """Return a device.

    Args:
        queues: include each of its queues.
    """
    device = found.device
    return {
        "name": device.name,
        "ifindex": device.ifindex,
        "netns": device.netns or None,
        "netns_inode": device.netns_inode,
        "kind": device.kind,
        "driver": str(device.driver) if device.driver else None,
        "backpressure": device.enabled,
        "owners": [owner(one) for one in device.owners],
        "interval_s": found.interval_s,
        "tx_packets_per_s": found.link.get("tx_packets"),
        "tx_bytes_per_s": found.link.get("tx_bytes"),
        "rx_packets_per_s": found.link.get("rx_packets"),
        "rx_bytes_per_s": found.link.get("rx_bytes"),
        "rx_dropped_packets_per_s": found.link.get("rx_dropped"),
        "tx_dropped_packets_per_s": found.dropped,
        "drops_by_cause_packets_per_s": found.drops if found.link else None,
        **_counters(found.counters),
        "ring_packets": found.ring_packets,
        "txqueuelen_packets": device.txqueuelen,
        "qdisc": _qdisc(device.qdisc, found.qdisc),
        **_waits(found.waits),
        "queue": [_queue(one) for one in found.queues] if queues else None,
    }


def _queue(found: QueueRow) -> dict[str, Any]:
    queue = found.queue
    return {
        "index": queue.index,
        "tx_packets_per_s": found.packets,
        "tx_bytes_per_s": found.bytes,
        "drops_by_cause_packets_per_s": found.drops or None,
        **_counters(found.counters),
        "ring_packets": queue.ring_packets,
        "limit_packets": queue.limit_packets,
        "pace_ns": queue.pace_ns,
        "stalled_ms": queue.stalled_ms,
        "qdisc": _qdisc(queue.qdisc, found.qdisc) if queue.qdisc else None,
        **_waits(found.waits),
    }


def _counters(found: Rates) -> dict[str, float | None]:
    return {f"{name}_per_s": found.get(name) for name in _COUNTERS}


def _qdisc(found: Qdisc, rates: Rates) -> dict[str, Any]:
    return {
        "kind": found.label,
        "queued_packets": found.queued_packets,
        "queued_bytes": found.queued_bytes,
        "flows": found.flows,
        "dropped_packets_per_s": rates.get("drops"),
        "requeued_packets_per_s": rates.get("requeues"),
        "ecn_marked_packets_per_s": rates.get("ecn_marks"),
    }


def _waits(found: Waits) -> dict[str, float | None]:
    return {
        "qdisc_wait_estimate_ms": found.qdisc_ms,
        "ring_wait_estimate_ms": found.ring_ms,
        "wait_estimate_ms": found.both_ms,
    }
