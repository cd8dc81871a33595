# SPDX-License-Identifier: GPL-2.0-only
"""Virtual links as commands show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from nodrop.host.cgroup import Place
from nodrop.host.kinds import DIRECT

GAUGES = frozenset({"ring", "limit", "pace_ns", "stalled_ms"})
"""A queue's statistics that are not counters: packets in the ring, its limit, the reader's time per
packet, and the time since it was found stalled."""
WRAPS = frozenset({"taken"})
"""A queue's counters that are modulo 2^32."""
_HALF = 1 << 31

_Number = TypeVar("_Number", int, float)


def increase(name: str, before: int, now: int) -> int:
    """Return the increase of a counter; negative: it belongs to a new queue.

    One of WRAPS that decreased has wrapped, if that makes less than half of its range.
    """
    grown = now - before
    return (grown + _HALF) % (2 * _HALF) - _HALF if name in WRAPS else grown


def by_cause(counters: Mapping[str, _Number]) -> dict[str, _Number]:
    """Return nodrop's counters of dropped packets by cause, of all its counters or their rates."""
    return {
        name.removeprefix("drop_"): value
        for name, value in counters.items()
        if name.startswith("drop_")
    }


class Driver(StrEnum):
    """The driver of a device, or of a module."""

    STOCK = "stock"
    """The kernel's own: a full ring drops."""
    UPSTREAM = "upstream"
    """The kernel's own, and the application set IFF_BACKPRESSURE (Linux 7.3)."""
    NODROP = "nodrop"
    """nodrop's module."""
    LIVE = "live"
    """The kernel's own, livepatched by nodrop."""


@dataclass(frozen=True)
class Queue:
    """One queue of a device.

    Attributes:
        index: number of the queue.
        counters: nodrop's statistics ("stops", "drop_noqueue" ...); empty for other drivers.
        qdisc: the queue's child of mq; None: the device's qdisc serves all queues.
    """

    index: int
    counters: dict[str, int]
    qdisc: Qdisc | None = None

    @property
    def ring_packets(self) -> int | None:
        """Packets in the ring now; None: the driver does not report them."""
        return self.counters.get("ring")

    @property
    def limit_packets(self) -> int | None:
        """Packets that the ring may hold now; of a macvtap or ipvtap, besides charged frames."""
        return self.counters.get("limit")

    @property
    def pace_ns(self) -> int | None:
        """Reader's time per packet in its last few samples, ns; None: not measured."""
        return self.counters.get("pace_ns") or None

    @property
    def stalled_ms(self) -> int | None:
        """Time since the reader was found stalled, ms; 0: it is not; None: not reported."""
        return self.counters.get("stalled_ms")


@dataclass(frozen=True)
class Owner:
    """A process that has a device open.

    Attributes:
        queues: number of the device's queues that it has open.
        vhost: it has /dev/vhost-net open, so the kernel reads for it.
        place: its unit, container or virtual machine.
        vhost_workers: vhost's threads of the process: "name", "tid", "cpu" that it last ran on,
            "device_known": it serves this device, the only one that the process has open.
        edge: of ``queues``, how many it watches for edges alone (EPOLLET).
    """

    pid: int
    name: str
    user: int
    queues: int
    vhost: bool
    place: Place
    vhost_workers: list[dict[str, Any]]
    edge: int = 0


@dataclass(frozen=True)
class Qdisc:
    """All qdiscs of a device, from its root down.

    Attributes:
        kind: kind of the root ("noqueue": there is no queue).
        leaves: distinct kinds of the children of mq.
        limit_packets: limit of the root; None: it has none.
        queued_packets, queued_bytes: queued now.
        drops, requeues: since it was created.
        sent_packets, sent_bytes: passed to the driver since it was created.
        flows: fq_codel's flows that have packets now; None: not reported.
        ecn_marks: packets that it marked instead of dropping; None: not reported.
        handle, parent: as in tc; "": none.
    """

    kind: str
    leaves: tuple[str, ...]
    limit_packets: int | None
    queued_packets: int
    queued_bytes: int
    drops: int
    requeues: int
    sent_packets: int = 0
    sent_bytes: int = 0
    flows: int | None = None
    ecn_marks: int | None = None
    handle: str = ""
    parent: str = ""

    @property
    def label(self) -> str:
        """The qdisc for messages: ``mq/fq_codel``."""
        return "/".join((self.kind, ",".join(self.leaves))) if self.leaves else self.kind


@dataclass(frozen=True)
class Device:
    """A virtual link.

    Attributes:
        netns: name of its namespace; "": the command's own.
        netns_inode: inode of the namespace.
        kind: "tun", "tap", "macvtap", "ipvtap", or a tunnel's ("vxlan", "wireguard" ...).
        tunnel: it is a tunnel in the kernel, without a ring.
        up: it is set up (IFF_UP).
        carrier: it is open (IFF_LOWER_UP); of a tunnel: it works.
        driver: None for a tunnel.
        enabled: whether a full ring stops its sender.
        txqueuelen: slots of each ring, and the limit of some qdiscs.
        queues: attached queues; queues_max: how many it can have.
        queue: the attached queues.
        multi_queue, vnet_hdr, persist: flags it was created with; None: not known.
        owners: processes that have it open, as far as they can be inspected.
        tx_packets, tx_bytes: sent to the reader, or into the tunnel. The kernel counts them as
            received for a macvtap or ipvtap (DIRECT).
        tx_dropped: packets for the reader that the driver dropped, such as at a full ring.
        rx_packets, rx_bytes, rx_dropped: the opposite direction.
        qdiscs: each of its qdiscs.
        checksums: it is persistent, and its reader must fill in checksums, which needs vnet_hdr.
    """

    name: str
    ifindex: int
    netns: str
    netns_inode: int
    kind: str
    tunnel: bool
    up: bool
    carrier: bool
    mtu: int
    driver: Driver | None
    enabled: bool
    txqueuelen: int
    qdisc: Qdisc
    queues: int
    queues_max: int
    queue: tuple[Queue, ...]
    multi_queue: bool | None
    vnet_hdr: bool | None
    persist: bool | None
    owners: tuple[Owner, ...]
    tx_packets: int
    tx_bytes: int
    tx_dropped: int
    rx_packets: int
    rx_bytes: int
    rx_dropped: int
    qdiscs: tuple[Qdisc, ...] = ()
    checksums: bool = False

    @property
    def direct(self) -> bool:
        """Whether it has no qdisc before its ring (DIRECT)."""
        return self.kind in DIRECT

    @property
    def vhost(self) -> bool:
        """Whether vhost-net reads it."""
        return any(owner.vhost for owner in self.owners)

    @property
    def label(self) -> str:
        """The name for messages: ``tun0``, or ``blue/tun0`` in another namespace."""
        return f"{self.netns}/{self.name}" if self.netns else self.name

    def counter(self, name: str) -> int | None:
        """Return the sum of one of nodrop's counters over all queues; None: not reported."""
        values = [queue.counters[name] for queue in self.queue if name in queue.counters]
        return sum(values) if values else None

    @property
    def drops_by_cause(self) -> dict[str, int]:
        """nodrop's counters of dropped packets, by cause, over all queues."""
        causes: dict[str, int] = {}
        for queue in self.queue:
            for cause, value in by_cause(queue.counters).items():
                causes[cause] = causes.get(cause, 0) + value
        return causes


@dataclass(frozen=True)
class Module:
    """The state of a driver module.

    Attributes:
        loaded: it is loaded or built in.
        built_in: it is part of the kernel's image, so it cannot be replaced.
        driver: which driver it is; STOCK if it is not loaded.
        version: nodrop's version; "" for the kernel's own.
    """

    loaded: bool
    built_in: bool
    driver: Driver
    version: str


@dataclass(frozen=True)
class Host:
    """A machine at one time.

    Attributes:
        release: release of the running kernel.
        tun, vhost_net, tap: the modules; macvtap and ipvtap use tap.
        default_on: whether backpressure is on by default; None: nodrop is not loaded.
        guard_ms: time in which a reader must take what a full ring holds, or it is stalled; 0: any
            time; None: there is no stall guard.
        tap_guard_ms: of macvtap and ipvtap: time after which a reader that takes nothing is
            stalled; 0: never.
        default_qdisc: qdisc of new devices; "": not known.
        hidden_processes: number of processes that could not be inspected: owners may be missing.
        unread: namespaces that could not be read -> reason.
        unreached: number of namespaces that were not read in time.
        time_s: when it was read, monotonic.
        moving: nodrop's livepatch is in transition.
        root: it was read as root.
    """

    release: str
    tun: Module
    vhost_net: Module
    default_on: bool | None
    guard_ms: int | None
    default_qdisc: str
    hidden_processes: int
    unread: dict[str, str]
    time_s: float
    devices: tuple[Device, ...]
    moving: bool = False
    root: bool = True
    unreached: int = 0
    tap: Module = Module(loaded=False, built_in=False, driver=Driver.STOCK, version="")
    tap_guard_ms: int | None = None
