# SPDX-License-Identifier: GPL-2.0-only
"""Collect the metrics of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodrop.host.model import Device, Host, Queue, by_cause
from nodrop.prometheus import metrics
from nodrop.prometheus.metrics import Metric, T
from nodrop.prometheus.text import Family, readable


def collect(host: Host, devices: Sequence[Device], duration_s: float) -> list[Family]:
    """Return all families in their order, including those without a sample.

    Args:
        devices: the selected devices of the machine.
        duration_s: time that reading the machine took, seconds.
    """
    ordered = sorted(devices, key=lambda device: (netns(device), readable(device.name)))
    duration = Family(metrics.DURATION[0], metrics.GAUGE, metrics.DURATION[1], ())
    duration.samples[()] = round(duration_s, 6)
    return [*_machine(host), duration, *_devices(ordered), *_queues(ordered)]


def netns(device: Device) -> str:
    """Return the label for a device's namespace: its name, "" for the command's own.

    The label of a namespace without a name is its inode as the kernel prints it, since a PID or
    a path would not be stable.
    """
    name = device.netns
    if name.isdigit() or "/" in name:
        return f"net:[{device.netns_inode}]"
    return readable(name)


def _machine(host: Host) -> list[Family]:
    info = Family(
        metrics.MODULE_INFO[0], metrics.GAUGE, metrics.MODULE_INFO[1], metrics.MODULE_LABELS
    )
    for name, module in metrics.modules(host).items():
        info.samples[name, str(module.driver), module.version] = 1
    return [info, *_families(metrics.MACHINE, (), {(): host})]


def _devices(devices: Sequence[Device]) -> list[Family]:
    info = Family(
        metrics.DEVICE_INFO[0], metrics.GAUGE, metrics.DEVICE_INFO[1], metrics.INFO_LABELS
    )
    labelled: dict[tuple[str, ...], Device] = {
        (readable(one.name), netns(one), one.kind, metrics.driver_of(one)): one for one in devices
    }
    for values, device in labelled.items():
        owners = ",".join(sorted({readable(owner.name) for owner in device.owners}))
        vhost = "yes" if device.vhost else "no"
        info.samples[*values, owners, readable(device.qdisc.label), vhost] = 1
    return [info, *_families(metrics.DEVICE, metrics.DEVICE_LABELS, labelled)]


def _queues(devices: Sequence[Device]) -> list[Family]:
    queues: dict[tuple[str, ...], Queue] = {
        (readable(device.name), netns(device), str(queue.index)): queue
        for device in devices
        for queue in device.queue
    }
    dropped = Family(
        metrics.DROPPED_BY_CAUSE[0],
        metrics.COUNTER,
        metrics.DROPPED_BY_CAUSE[1],
        metrics.CAUSE_LABELS,
    )
    for values, queue in queues.items():
        for cause, number in sorted(by_cause(queue.counters).items()):
            dropped.samples[*values, cause] = number
    return [dropped, *_families(metrics.QUEUE, metrics.QUEUE_LABELS, queues)]


def _families(
    wanted: Sequence[Metric[T]], labels: tuple[str, ...], found: Mapping[tuple[str, ...], T]
) -> Iterator[Family]:
    """Yield a family for each metric; an unknown value has no sample."""
    for metric in wanted:
        numbers = {values: metric.number(one) for values, one in found.items()}
        samples = {values: n for values, n in numbers.items() if n is not None}
        yield Family(metric.name, metric.kind, metric.help, labels, samples)
