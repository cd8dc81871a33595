# SPDX-License-Identifier: GPL-2.0-only
"""All exported metrics: names, labels, and the source of each value.

Labels are stable: a PID or an ifindex would create a new series with each start of a VPN. Only
``nodrop_device_info`` has a device's owner.
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
    """A metric of the machine, of each device or of each queue.

    Attributes:
        number: returns the value; None: unknown, so there is no sample.
    """

    name: str
    kind: str
    help: str
    number: Callable[[T], float | None]


MODULE_INFO = (
    "nodrop_module_info",
    "A loaded module, and which driver it is: stock, nodrop or live.",
)
DEVICE_INFO = (
    "nodrop_device_info",
    "A device with its owner and its qdisc; owner is empty if there is none or it is unknown.",
)
DROPPED_BY_CAUSE = (
    "nodrop_queue_dropped_packets_total",
    "Packets that nodrop's driver dropped, by cause.",
)
DURATION = ("nodrop_scrape_duration_seconds", "Time that reading the machine took.")


def modules(host: Host) -> dict[str, Module]:
    """Return the loaded modules."""
    all_three = {"tun": host.tun, "vhost_net": host.vhost_net, "tap": host.tap}
    return {name: module for name, module in all_three.items() if module.loaded}


def _of_ring(number: Callable[[Device], float]) -> Callable[[Device], float | None]:
    """Return a function that has no value for tunnels, which have no ring."""
    return lambda device: None if device.tunnel else number(device)


def _counter(name: str) -> Callable[[Queue], float | None]:
    """Return a function of one of nodrop's counters; other drivers have none."""
    return lambda queue: queue.counters.get(name)


def _guard(host: Host) -> float | None:
    return None if host.guard_ms is None else host.guard_ms / 1000


def _default(host: Host) -> float | None:
    return None if host.default_on is None else int(host.default_on)


def driver_of(device: Device) -> str:
    """Return the driver label; "" for a tunnel."""
    return str(device.driver) if isinstance(device.driver, Driver) else ""


MACHINE: tuple[Metric[Host], ...] = (
    Metric("nodrop_guard_seconds", GAUGE, "Time in which a reader must take what a full ring "
              "holds, or it counts as stalled; 0: any.", _guard),
    Metric("nodrop_default_backpressure", GAUGE, "Whether backpressure is on by default.",
              _default),
    Metric("nodrop_unread_namespaces", GAUGE, "Network namespaces that were not read.",
              lambda host: len(host.unread) + host.unreached),
    Metric("nodrop_hidden_processes", GAUGE, "Processes that could not be inspected, so "
              "owners may be missing.", lambda host: host.hidden_processes),
)  # fmt: skip

DEVICE: tuple[Metric[Device], ...] = (
    Metric("nodrop_device_up", GAUGE, "Whether the device is set up (IFF_UP).",
             lambda device: int(device.up)),
    Metric("nodrop_device_carrier", GAUGE, "Whether the device is open; of a tunnel: whether it "
             "works.", lambda device: int(device.carrier)),
    Metric("nodrop_device_backpressure", GAUGE, "Whether a full ring stops its sender.",
             _of_ring(lambda device: int(device.enabled))),
    Metric("nodrop_device_transmit_packets_total", COUNTER, "Packets sent to the reader, or "
             "through the tunnel.",
             lambda device: device.tx_packets),
    Metric("nodrop_device_transmit_bytes_total", COUNTER, "Bytes sent to the reader, or through "
             "the tunnel.", lambda device: device.tx_bytes),
    Metric("nodrop_device_transmit_dropped_packets_total", COUNTER, "Packets that the "
             "driver dropped, such as at a full ring.", lambda device: device.tx_dropped),
    Metric("nodrop_device_receive_packets_total", COUNTER, "Packets received from the reader, or "
             "through the tunnel.",
             lambda device: device.rx_packets),
    Metric("nodrop_device_receive_bytes_total", COUNTER, "Bytes received from the reader, or "
             "through the tunnel.", lambda device: device.rx_bytes),
    Metric("nodrop_device_receive_dropped_packets_total", COUNTER, "Received packets that were "
             "dropped.", lambda device: device.rx_dropped),
    Metric("nodrop_device_qdisc_dropped_packets_total", COUNTER, "Packets that the qdisc "
             "dropped, by its limit or its AQM.", lambda device: device.qdisc.drops),
    Metric("nodrop_device_qdisc_requeued_packets_total", COUNTER, "Packets that the driver "
             "returned to the qdisc.", lambda device: device.qdisc.requeues),
    Metric("nodrop_device_qdisc_backlog_packets", GAUGE, "Packets in the qdisc.",
             lambda device: device.qdisc.queued_packets),
    Metric("nodrop_device_qdisc_backlog_bytes", GAUGE, "Bytes in the qdisc.",
             lambda device: device.qdisc.queued_bytes),
    Metric("nodrop_device_txqueuelen_packets", GAUGE, "Slots of each ring, and the limit of "
             "some qdiscs.", lambda device: device.txqueuelen),
    Metric("nodrop_device_queues", GAUGE, "Attached queues.",
             _of_ring(lambda device: device.queues)),
)  # fmt: skip

QUEUE: tuple[Metric[Queue], ...] = (
    Metric("nodrop_queue_stops_total", COUNTER, "Times the queue was stopped.", _counter("stops")),
    Metric("nodrop_queue_limit_stops_total", COUNTER, "Stops at a limit below txqueuelen.",
            _counter("stops_limit")),
    Metric("nodrop_queue_wakes_total", COUNTER, "Times the reader woke the queue.",
            _counter("wakes")),
    Metric("nodrop_queue_kicks_total", COUNTER, "Times the reader made another CPU run the "
            "qdisc.", _counter("kicks")),
    Metric("nodrop_queue_local_kicks_total", COUNTER, "Times the reader ran the qdisc on its own "
            "CPU.", _counter("kicks_here")),
    Metric("nodrop_queue_guard_trips_total", COUNTER, "Times the reader was found stalled.",
            _counter("guard_trips")),
    Metric("nodrop_queue_ring_packets", GAUGE, "Packets in the ring.",
            lambda queue: queue.ring_packets),
    Metric("nodrop_queue_limit_packets", GAUGE, "Packets that the ring may hold now.",
            lambda queue: queue.limit_packets),
    Metric("nodrop_queue_pace_seconds", GAUGE, "Reader's time per packet, of its last few samples.",
            lambda queue: None if queue.pace_ns is None else queue.pace_ns / 1e9),
    Metric("nodrop_queue_stalled_seconds", GAUGE, "Time since the reader was found stalled; 0: it "
            "is not.",
            lambda queue: None if queue.stalled_ms is None else queue.stalled_ms / 1e3),
)  # fmt: skip
