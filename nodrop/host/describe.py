# SPDX-License-Identifier: GPL-2.0-only
"""The model as JSON: units in the keys, null for unknown values (docs/guide.md)."""

from __future__ import annotations

from typing import Any

from nodrop.columns import Cell
from nodrop.host.model import GAUGES, Device, Driver, Host, Module, Owner, Qdisc, Queue


def driver_cell(found: Device) -> Cell:
    """Return the driver of a device with a ring, for a table."""
    if found.driver is Driver.STOCK:
        return (str(found.driver), "yellow")
    return (str(found.driver), "green") if found.enabled else (f"{found.driver} off", "yellow")


def host(found: Host) -> dict[str, Any]:
    """Return the machine without its devices."""
    return {
        "kernel": found.release,
        "tun": module(found.tun),
        "vhost_net": module(found.vhost_net),
        "tap": module(found.tap),
        "default_on": found.default_on,
        "guard_ms": found.guard_ms,
        "default_qdisc": found.default_qdisc or None,
        "hidden_processes": found.hidden_processes,
        "unread_namespaces": found.unread,
        "unreached_namespaces": found.unreached,
    }


def module(found: Module) -> dict[str, Any]:
    """Return a driver module."""
    return {
        "loaded": found.loaded,
        "built_in": found.built_in,
        "driver": str(found.driver),
        "version": found.version or None,
    }


def device(found: Device) -> dict[str, Any]:
    """Return a device with its queues and owners."""
    return {
        "name": found.name,
        "ifindex": found.ifindex,
        "netns": found.netns or None,
        "netns_inode": found.netns_inode,
        "kind": found.kind,
        "tunnel": found.tunnel,
        "up": found.up,
        "carrier": found.carrier,
        "mtu_bytes": found.mtu,
        "driver": str(found.driver) if found.driver else None,
        "backpressure": found.enabled,
        "txqueuelen_packets": found.txqueuelen,
        "qdisc": qdisc(found.qdisc),
        "queues": found.queues,
        "queues_max": found.queues_max,
        "multi_queue": found.multi_queue,
        "vnet_hdr": found.vnet_hdr,
        "persist": found.persist,
        "vhost": found.vhost,
        "owners": [{**owner(one), **_place(found, one)} for one in found.owners],
        "tx_packets": found.tx_packets,
        "tx_bytes": found.tx_bytes,
        "tx_dropped_packets": found.tx_dropped,
        "rx_packets": found.rx_packets,
        "rx_bytes": found.rx_bytes,
        "rx_dropped_packets": found.rx_dropped,
        "stops": found.counter("stops"),
        "wakes": found.counter("wakes"),
        "guard_trips": found.counter("guard_trips"),
        "drops_by_cause_packets": found.drops_by_cause,
        "queue": [queue(one) for one in found.queue],
    }


def owner(found: Owner) -> dict[str, Any]:
    """Return an owner of a device."""
    return {name: vars(found)[name] for name in ("pid", "name", "user", "queues", "vhost")}


def _place(found: Device, one: Owner) -> dict[str, Any]:
    workers = one.vhost_workers
    # A single worker of a process with a single device serves that device's single queue.
    queue = 0 if found.queues == len(workers) == 1 and workers[0]["device_known"] else None
    return {**vars(one.place), "vhost_workers": [{**each, "queue": queue} for each in workers]}


def qdisc(found: Qdisc) -> dict[str, Any]:
    """Return a device's qdiscs."""
    return {
        "kind": found.kind,
        "leaves": list(found.leaves),
        "limit_packets": found.limit_packets,
        "queued_packets": found.queued_packets,
        "queued_bytes": found.queued_bytes,
        "dropped_packets": found.drops,
        "requeued_packets": found.requeues,
    }


def queue(found: Queue) -> dict[str, Any]:
    """Return a queue with its counters of ``ethtool -S``."""
    return {
        "index": found.index,
        "ring_packets": found.ring_packets,
        "limit_packets": found.limit_packets,
        "pace_ns": found.pace_ns,
        "stalled_ms": found.stalled_ms,
        "counters": {name: value for name, value in found.counters.items() if name not in GAUGES},
    }
