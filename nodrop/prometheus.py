# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of virtual links for Prometheus, in its text exposition format, version 0.0.4.

Labels are stable: a PID or an ifindex would create a new series with each start of a VPN. Only
``nodrop_device_info`` has a device's owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodrop.host.counters import by_cause
from nodrop.host.model import Device, Host, Queue
from nodrop.host.modules import REPLACED

DEVICE_LABELS = ("device", "netns", "kind", "driver")
QUEUE_LABELS = ("device", "netns", "queue")

Samples = dict[tuple[str, ...], float]
"""Label values -> value, in printing order."""


@dataclass(frozen=True)
class MetricFamily:
    """All samples of one metric.

    Attributes:
        name: includes the unit; that of a counter ends in ``_total``.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    samples: Samples = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def _of_ring(number: Callable[[Device], float]) -> Callable[[Device], float | None]:
    """Return a function that has no value for tunnels, which have no ring."""
    return lambda device: None if device.tunnel else number(device)


def _counter(name: str) -> Callable[[Queue], float | None]:
    """Return a function of one of nodrop's counters; other drivers have none."""
    return lambda queue: queue.counters.get(name)


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale


# Name without "nodrop_", help, and value; None: unknown, so there is no sample.
_MACHINE: tuple[tuple[str, str, Callable[[Host], float | None]], ...] = (
    ("guard_seconds", "Time in which a reader must take what a full ring holds, or it counts as "
     "stalled; 0: any.", lambda host: _scaled(host.guard_ms, 1e3)),
    ("default_backpressure", "Whether backpressure is on by default.",
     lambda host: None if host.default_on is None else int(host.default_on)),
    ("unread_namespaces", "Network namespaces that were not read.",
     lambda host: len(host.unread) + host.unreached),
    ("hidden_processes", "Processes that could not be inspected, so owners may be missing.",
     lambda host: host.hidden_processes),
)  # fmt: skip
_DEVICE: tuple[tuple[str, str, Callable[[Device], float | None]], ...] = (
    ("up", "Whether the device is set up (IFF_UP).", lambda device: int(device.up)),
    ("carrier", "Whether the device is open; of a tunnel: whether it works.",
     lambda device: int(device.carrier)),
    ("backpressure", "Whether a full ring stops its sender.",
     _of_ring(lambda device: int(device.enabled))),
    ("transmit_packets_total", "Packets sent to the reader, or through the tunnel.",
     lambda device: device.tx_packets),
    ("transmit_bytes_total", "Bytes sent to the reader, or through the tunnel.",
     lambda device: device.tx_bytes),
    ("transmit_dropped_packets_total", "Packets that the driver dropped, such as at a full ring.",
     lambda device: device.tx_dropped),
    ("receive_packets_total", "Packets received from the reader, or through the tunnel.",
     lambda device: device.rx_packets),
    ("receive_bytes_total", "Bytes received from the reader, or through the tunnel.",
     lambda device: device.rx_bytes),
    ("receive_dropped_packets_total", "Received packets that were dropped.",
     lambda device: device.rx_dropped),
    ("qdisc_dropped_packets_total", "Packets that the qdisc dropped, by its limit or its AQM.",
     lambda device: device.qdisc.drops),
    ("qdisc_requeued_packets_total", "Packets that the driver returned to the qdisc.",
     lambda device: device.qdisc.requeues),
    ("qdisc_backlog_packets", "Packets in the qdisc.", lambda device: device.qdisc.queued_packets),
    ("qdisc_backlog_bytes", "Bytes in the qdisc.", lambda device: device.qdisc.queued_bytes),
    ("txqueuelen_packets", "Slots of each ring, and the limit of some qdiscs.",
     lambda device: device.txqueuelen),
    ("queues", "Attached queues.", _of_ring(lambda device: device.queues)),
)  # fmt: skip
_QUEUE: tuple[tuple[str, str, Callable[[Queue], float | None]], ...] = (
    ("stops_total", "Times the queue was stopped.", _counter("stops")),
    ("limit_stops_total", "Stops at a limit below txqueuelen.", _counter("stops_limit")),
    ("wakes_total", "Times the reader woke the queue.", _counter("wakes")),
    ("kicks_total", "Times the reader made another CPU run the qdisc.", _counter("kicks")),
    ("local_kicks_total", "Times the reader ran the qdisc on its own CPU.",
     _counter("kicks_here")),
    ("guard_trips_total", "Times the reader was found stalled.", _counter("guard_trips")),
    ("ring_packets", "Packets in the ring.", lambda queue: queue.ring_packets),
    ("limit_packets", "Packets that the ring may hold now.", lambda queue: queue.limit_packets),
    ("pace_seconds", "Reader's time per packet, of its last few samples.",
     lambda queue: _scaled(queue.pace_ns, 1e9)),
    ("stalled_seconds", "Time since the reader was found stalled; 0: it is not.",
     lambda queue: _scaled(queue.stalled_ms, 1e3)),
)  # fmt: skip


def collect(host: Host, devices: Sequence[Device], duration_s: float) -> list[MetricFamily]:
    """Return all families in their order, including those without a sample.

    Args:
        duration_s: time that reading the machine took, seconds.
    """
    ordered = sorted(devices, key=lambda device: (_netns(device), readable(device.name)))
    queues: dict[tuple[str, ...], Queue] = {
        (readable(device.name), _netns(device), str(queue.index)): queue
        for device in ordered
        for queue in device.queue
    }
    return [
        MetricFamily(
            "nodrop_module_info",
            "A loaded module, and which driver it is: stock, nodrop or live.",
            ("module", "driver", "version"),
            {
                (name, str(module.driver), module.version): 1
                for name in REPLACED
                if (module := getattr(host, name)).loaded
            },
        ),
        *_families("nodrop", _MACHINE, (), {(): host}),
        MetricFamily(
            "nodrop_scrape_duration_seconds",
            "Time that reading the machine took.",
            samples={(): round(duration_s, 6)},
        ),
        MetricFamily(
            "nodrop_device_info",
            "A device with its owner and its qdisc; owner is empty if there is none or it is "
            "unknown.",
            (*DEVICE_LABELS, "owner", "qdisc", "vhost"),
            {(*_labels(device), *_info(device)): 1 for device in ordered},
        ),
        *_families(
            "nodrop_device", _DEVICE, DEVICE_LABELS, {_labels(device): device for device in ordered}
        ),
        MetricFamily(
            "nodrop_queue_dropped_packets_total",
            "Packets that nodrop's driver dropped, by cause.",
            (*QUEUE_LABELS, "cause"),
            {
                (*values, cause): packets
                for values, queue in queues.items()
                for cause, packets in sorted(by_cause(queue.counters).items())
            },
        ),
        *_families("nodrop_queue", _QUEUE, QUEUE_LABELS, queues),
    ]


def _netns(device: Device) -> str:
    """Return the label for a device's namespace: its name, "" for the command's own.

    The label of a namespace without a name is its inode as the kernel prints it, since a PID or
    a path would not be stable.
    """
    if device.netns.isdigit() or "/" in device.netns:
        return f"net:[{device.netns_inode}]"
    return readable(device.netns)


def _labels(device: Device) -> tuple[str, ...]:
    return readable(device.name), _netns(device), device.kind, str(device.driver or "")


def _info(device: Device) -> tuple[str, str, str]:
    owners = ",".join(sorted({readable(owner.name) for owner in device.owners}))
    return owners, readable(device.qdisc.label), "yes" if device.vhost else "no"


def _families(
    prefix: str,
    metrics: Iterable[tuple[str, str, Callable[[Any], float | None]]],
    labels: tuple[str, ...],
    sources: Mapping[tuple[str, ...], Any],
) -> Iterator[MetricFamily]:
    """Yield a family for each metric."""
    for name, text, number in metrics:
        numbers = {values: number(source) for values, source in sources.items()}
        samples = {values: value for values, value in numbers.items() if value is not None}
        yield MetricFamily(f"{prefix}_{name}", text, labels, samples)


def page(families: Iterable[MetricFamily]) -> bytes:
    """Return a page in UTF-8, whatever the locale, without families that have no sample."""
    return "".join(f"{line}\n" for line in _lines(families)).encode()


def _lines(families: Iterable[MetricFamily]) -> Iterator[str]:
    for family in families:
        if not family.samples:
            continue
        yield f"# HELP {family.name} {_escaped(family.help)}"
        yield f"# TYPE {family.name} {family.kind}"
        for values, number in family.samples.items():
            pairs = zip(family.labels, values)
            quoted = ((label, _escaped(value).replace('"', r"\"")) for label, value in pairs)
            labels = ",".join(f'{label}="{value}"' for label, value in quoted)
            yield f"{family.name}{{{labels}}} {number}" if labels else f"{family.name} {number}"


def readable(text: str) -> str:
    r"""Return a text that UTF-8 can encode; bytes of a name that are not UTF-8 become ``\xff``.

    Different names stay different.
    """
    text = text.replace("\\", r"\\")
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
