# SPDX-License-Identifier: GPL-2.0-only
"""Every metric that is exported: its name, its labels, and where its number comes from.

Labels are stable: a pid or an ifindex would make a new series with each start of a VPN.
Who reads a device is told once, by ``nodrop_device_info``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from nodrop.host.model import Device, Driver, Host, Module, Queue

COUNTER, GAUGE = "counter", "gauge"
T = TypeVar("T")

MODULE_LABELS = ("module", "driver", "version")
DEVICE_LABELS = ("device", "netns", "kind", "driver")
INFO_LABELS = (*DEVICE_LABELS, "owner", "qdisc", "vhost")
QUEUE_LABELS = ("device", "netns", "queue")
CAUSE_LABELS = (*QUEUE_LABELS, "cause")


class Metric(NamedTuple, Generic[T]):
    """A number of the whole machine, of each device or of each queue.

    Attributes:
        number: None: it cannot be known, and there is no sample.
    """

    name: str
    kind: str
    help: str
    number: Callable[[T], float | None]


MODULE_INFO = (
    "nodrop_module_info",
    "A driver that is loaded, and whose it is: stock, nodrop or live.",
)
DEVICE_INFO = (
    "nodrop_device_info",
    "A device, who reads it, and its qdisc; no owner: nobody, or not known.",
)
DROPPED_BY_CAUSE = (
    "nodrop_queue_dropped_packets_total",
    "Packets that nodrop's driver dropped, by cause.",
)
DURATION = ("nodrop_scrape_duration_seconds", "How long it took to read the machine.")


def modules(host: Host) -> dict[str, Module]:
    """Return the drivers that are loaded."""
    all_three = {"tun": host.tun, "vhost_net": host.vhost_net, "tap": host.tap}
    return {name: module for name, module in all_three.items() if module.loaded}


def _of_ring(number: Callable[[Device], float]) -> Callable[[Device], float | None]:
    """Say nothing of tunnels, which have no ring."""
    return lambda device: None if device.tunnel else number(device)


def _counter(name: str) -> Callable[[Queue], float | None]:
    """Return one of the driver's own counters; other drivers have none."""
    return lambda queue: queue.counters.get(name)


def _guard(host: Host) -> float | None:
    return None if host.guard_ms is None else host.guard_ms / 1000


def _default(host: Host) -> float | None:
    return None if host.default_on is None else int(host.default_on)


def driver_of(device: Device) -> str:
    """Return the label for whose driver it is; "" for a tunnel."""
    return str(device.driver) if isinstance(device.driver, Driver) else ""


MACHINE: tuple[Metric[Host], ...] = (
    Metric("nodrop_guard_seconds", GAUGE, "How long a reader may take nothing from a full "
              "ring until it counts as stalled; 0: for ever.", _guard),
    Metric("nodrop_default_backpressure", GAUGE, "Whether devices push back when "
              "their application did not ask for it.", _default),
    Metric("nodrop_unread_namespaces", GAUGE, "Network namespaces that were not read.",
              lambda host: len(host.unread) + host.unreached),
    Metric("nodrop_hidden_processes", GAUGE, "Processes that could not be looked into, so "
              "that owners may be missing.", lambda host: host.hidden_processes),
)  # fmt: skip

DEVICE: tuple[Metric[Device], ...] = (
    Metric("nodrop_device_up", GAUGE, "Whether the administrator has it up.",
             lambda device: int(device.up)),
    Metric("nodrop_device_carrier", GAUGE, "Whether somebody has it open; of a tunnel: whether "
             "it works.", lambda device: int(device.carrier)),
    Metric("nodrop_device_backpressure", GAUGE, "Whether a full ring stops its sender.",
             _of_ring(lambda device: int(device.enabled))),
    Metric("nodrop_device_transmit_packets_total", COUNTER, "Packets that went out: to the "
             "reader, or through the tunnel.",
             lambda device: device.tx_packets),
    Metric("nodrop_device_transmit_bytes_total", COUNTER, "Bytes that went out.",
             lambda device: device.tx_bytes),
    Metric("nodrop_device_transmit_dropped_packets_total", COUNTER, "Packets lost on their way "
             "to the reader: by the ring, and the driver.", lambda device: device.tx_dropped),
    Metric("nodrop_device_receive_packets_total", COUNTER, "Packets that came in: from the "
             "reader, or through the tunnel.",
             lambda device: device.rx_packets),
    Metric("nodrop_device_receive_bytes_total", COUNTER, "Bytes that came in.",
             lambda device: device.rx_bytes),
    Metric("nodrop_device_receive_dropped_packets_total", COUNTER, "Packets that came in "
             "and were dropped.", lambda device: device.rx_dropped),
    Metric("nodrop_device_qdisc_dropped_packets_total", COUNTER, "Packets that its qdisc "
             "dropped, by its limit or its AQM.", lambda device: device.qdisc.drops),
    Metric("nodrop_device_qdisc_requeued_packets_total", COUNTER, "Packets that the driver gave "
             "back to the qdisc.", lambda device: device.qdisc.requeues),
    Metric("nodrop_device_qdisc_backlog_packets", GAUGE, "Packets that wait in its qdisc.",
             lambda device: device.qdisc.queued_packets),
    Metric("nodrop_device_qdisc_backlog_bytes", GAUGE, "Bytes that wait in its qdisc.",
             lambda device: device.qdisc.queued_bytes),
    Metric("nodrop_device_txqueuelen_packets", GAUGE, "Slots of each ring, and the limit of "
             "some qdiscs.", lambda device: device.txqueuelen),
    Metric("nodrop_device_queues", GAUGE, "Queues that are attached.",
             _of_ring(lambda device: device.queues)),
)  # fmt: skip

QUEUE: tuple[Metric[Queue], ...] = (
    Metric("nodrop_queue_stops_total", COUNTER, "How often it was stopped.", _counter("stops")),
    Metric("nodrop_queue_limit_stops_total", COUNTER, "How often of these below txqueuelen.",
            _counter("stops_limit")),
    Metric("nodrop_queue_wakes_total", COUNTER, "How often the reader woke it.",
            _counter("wakes")),
    Metric("nodrop_queue_kicks_total", COUNTER, "How often the reader made the senders' CPU "
            "transmit.", _counter("kicks")),
    Metric("nodrop_queue_local_kicks_total", COUNTER, "How often the reader transmitted by "
            "itself.", _counter("kicks_here")),
    Metric("nodrop_queue_busy_packets_total", COUNTER, "Packets given back to the qdisc "
            "untouched.", _counter("busy")),
    Metric("nodrop_queue_guard_trips_total", COUNTER, "How often its reader was found stalled.",
            _counter("guard_trips")),
    Metric("nodrop_queue_ring_packets", GAUGE, "Packets in its ring.",
            lambda queue: queue.ring_packets),
    Metric("nodrop_queue_limit_packets", GAUGE, "Packets that its ring may hold now.",
            lambda queue: queue.limit_packets),
    Metric("nodrop_queue_pace_seconds", GAUGE, "What a packet took its reader in the last sample.",
            lambda queue: None if queue.pace_ns is None else queue.pace_ns / 1e9),
)  # fmt: skip
