# SPDX-License-Identifier: GPL-2.0-only
"""Virtual links as commands show them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodrop.host.cgroup import Place
from nodrop.host.kinds import DIRECT

GAUGES = frozenset({"ring", "limit", "pace_ns"})
"""Of a queue's counters, those that go up and down: packets in the ring, how many may be, and the
reader's time for each."""


class Driver(StrEnum):
    """Who decides what becomes of a packet that does not fit."""

    STOCK = "stock"
    """The kernel's own: it is dropped."""
    UPSTREAM = "upstream"
    """The kernel's own; the application asked for IFF_BACKPRESSURE (7.3)."""
    NODROP = "nodrop"
    """nodrop's module."""
    LIVE = "live"
    """The kernel's own, livepatched by nodrop."""


@dataclass(frozen=True)
class Queue:
    """One queue of a device.

    Attributes:
        index: its number.
        counters: nodrop's own ("stops", "wakes", "drop_noqueue" ...); empty for other drivers.
        qdisc: its own, below mq; None: the device's qdisc serves all queues.
    """

    index: int
    counters: dict[str, int]
    qdisc: Qdisc | None = None

    @property
    def ring_packets(self) -> int | None:
        """Packets in the ring now; None: the driver does not say."""
        return self.counters.get("ring")

    @property
    def limit_packets(self) -> int | None:
        """Packets that the ring may hold now; of a macvtap or ipvtap, beside charged frames."""
        return self.counters.get("limit")

    @property
    def pace_ns(self) -> int | None:
        """What a packet took the reader in its last sample; None: the driver has none."""
        return self.counters.get("pace_ns") or None


@dataclass(frozen=True)
class Owner:
    """A process that reads a device.

    Attributes:
        queues: how many queues of the device it has open.
        vhost: it has /dev/vhost-net open, so the kernel reads for it.
        place: the unit, container or virtual machine that it belongs to.
        vhost_workers: vhost's threads that work for the process: "name", "tid", "cpu" that it ran
            on last, "device_known": it serves this device, since the process has no other open.
    """

    pid: int
    name: str
    user: int
    queues: int
    vhost: bool
    place: Place
    vhost_workers: list[dict[str, Any]]


@dataclass(frozen=True)
class Qdisc:
    """All qdiscs of a device, from its root down.

    Attributes:
        kind: the root's ("noqueue": packets never wait).
        leaves: kinds of the children of mq, without repetition.
        limit_packets: of the root, where it has one.
        queued_packets, queued_bytes: waiting now.
        drops, requeues: since it was set up.
        sent_packets, sent_bytes: given to the driver, since it was set up.
        flows: how many of fq_codel's flows have packets now; None: it has no such number.
        ecn_marks: packets that it marked and did not drop; None: it has no such number.
        handle, parent: its place among the device's, as tc has it; "": it has none.
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
        """For people: ``mq/fq_codel``."""
        return "/".join((self.kind, ",".join(self.leaves))) if self.leaves else self.kind


@dataclass(frozen=True)
class Device:
    """A virtual link.

    Attributes:
        netns: the name of its namespace; "": the one that the command runs in.
        netns_inode: what the kernel knows the namespace by.
        kind: "tun", "tap", "macvtap", "ipvtap", or a tunnel's ("vxlan", "wireguard" ...).
        tunnel: packets go on in the kernel; there is no ring.
        up: the administrator's state.
        carrier: somebody has it open (a tunnel: it works).
        driver: None for a tunnel.
        enabled: whether a full ring stops its sender.
        txqueuelen: slots of each ring, and the limit of some qdiscs.
        queues: attached now; queues_max: what it was made for.
        queue: those that are attached.
        multi_queue, vnet_hdr, persist: flags that it was made with; None: not known.
        owners: processes that have it open, as far as they may be known.
        tx_packets, tx_bytes: on their way to the reader, or into the tunnel. The kernel calls them
            received where a macvtap or ipvtap is concerned (DIRECT).
        tx_dropped: packets lost on their way to the reader: by the ring, and the driver.
        rx_packets, rx_bytes, rx_dropped: the other way.
        qdiscs: each of its qdiscs by itself.
        checksums: whether its reader is left to fill in checksums, which takes vnet_hdr.
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
        """Whether no qdisc of its own comes before its ring (DIRECT)."""
        return self.kind in DIRECT

    @property
    def vhost(self) -> bool:
        """Whether vhost-net reads it."""
        return any(owner.vhost for owner in self.owners)

    @property
    def label(self) -> str:
        """For people: ``tun0``, or ``blue/tun0`` in another namespace."""
        return f"{self.netns}/{self.name}" if self.netns else self.name

    def counter(self, name: str) -> int | None:
        """Sum of one of nodrop's counters over all queues; None: the driver has no such."""
        values = [queue.counters[name] for queue in self.queue if name in queue.counters]
        return sum(values) if values else None

    @property
    def drops_by_cause(self) -> dict[str, int]:
        """nodrop's counters of dropped packets, by cause, over all queues."""
        causes: dict[str, int] = {}
        for queue in self.queue:
            for name, value in queue.counters.items():
                if name.startswith("drop_"):
                    cause = name.removeprefix("drop_")
                    causes[cause] = causes.get(cause, 0) + value
        return causes


@dataclass(frozen=True)
class Module:
    """One of the drivers, as it is loaded.

    Attributes:
        loaded: it is in the kernel.
        built_in: it is part of the kernel's image, so nothing can replace it.
        driver: whose it is; STOCK when it is not loaded.
        version: nodrop's; "" for the kernel's own.
    """

    loaded: bool
    built_in: bool
    driver: Driver
    version: str


@dataclass(frozen=True)
class Host:
    """A machine, as it was at one time.

    Attributes:
        release: of the running kernel.
        tun, vhost_net, tap: the modules; tap is that of macvtap and ipvtap.
        default_on: whether devices of applications that did not ask are held; None: nobody is.
        guard_ms: after how long a reader that takes nothing counts as stalled; 0: never;
            None: there is no guard.
        default_qdisc: for new devices with a queue.
        hidden_processes: how many processes could not be looked into, so owners may be missing.
        unread: namespaces that could not be read -> why.
        unreached: how many others there was no time for.
        time_s: when it was read, monotonic.
        moving: nodrop's livepatch is on its way in or out.
        root: it was read with all rights.
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
