# SPDX-License-Identifier: GPL-2.0-only
"""Virtual links as commands show them, and as JSON (docs/guide.md): units in the keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nodrop.enums import StrEnum
from nodrop.host.counters import GAUGES, Counters, Counts, by_cause, total
from nodrop.host.procfs import Cgroup
from nodrop.host.settings import matches
from nodrop.screen import Cell

RINGS = frozenset({"tun", "macvtap", "ipvtap"})
"""Kinds with a ring that a program or vhost-net reads."""

DIRECT = frozenset({"macvtap", "ipvtap"})
"""Kinds whose ring another device's receive path fills: they have no qdisc before the ring, and
count packets for their reader as received."""

TUNNELS = frozenset([
    "vxlan", "geneve", "bareudp", "gtp", "amt", "wireguard", "ovpn", "ovpn-dco", "ipip", "sit",
    "ip6tnl", "gre", "gretap", "erspan", "ip6gre", "ip6gretap", "ip6erspan", "vti", "vti6", "xfrm",
])  # fmt: skip
"""Tunnels in the kernel, which have no ring: packets go on to a lower device."""

_FALLBACK = frozenset(
    ["tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip6gre0", "ip_vti0", "ip6_vti0"]
)
"""Devices that a tunnel's module creates by itself in every namespace."""


def is_shown(link: dict[str, Any]) -> bool:
    kind = link.get("linkinfo", {}).get("info_kind")
    if kind in RINGS:
        return True
    idle = link.get("ifname") in _FALLBACK and "UP" not in link.get("flags", [])
    return kind in TUNNELS and not idle


def kind_of(link: Mapping[str, Any]) -> str:
    """Return the kind that commands show: "tun" or "tap" for a link of the tun driver."""
    info = link["linkinfo"]
    if info["info_kind"] == "tun":
        return str(info.get("info_data", {}).get("type", "tun"))
    return str(info["info_kind"])


class Driver(StrEnum):
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
        counters: nodrop's statistics ("stops", "drop_noqueue" ...); empty for other drivers.
        qdisc: the queue's child of mq; None: the device's qdisc serves all queues.
    """

    index: int
    counters: dict[str, int]
    qdisc: Qdisc | None = None

    @property
    def counts(self) -> Counts:
        """``counters`` without gauges."""
        return {name: value for name, value in self.counters.items() if name not in GAUGES}

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
        vhost_workers: vhost's threads of the process: "name", "tid", "cpu" that it last ran on,
            "device_known": it serves this device, the only one that the process has open.
        edge: of ``queues``, how many it watches for edges alone (EPOLLET).
    """

    pid: int
    name: str
    user: int
    queues: int
    vhost: bool
    cgroup: Cgroup
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
        limit_drops: those of fq_codel because it was full; None: not reported.
        sent_packets, sent_bytes: passed to the driver since it was created.
        flows: fq_codel's flows that have packets now; None: not reported.
        ecn_marks: packets that it marked instead of dropping; None: not reported.
        target_us: fq_codel's target, us; None: it is another qdisc.
        handle, parent: as in tc; "": none.
    """

    kind: str
    leaves: tuple[str, ...]
    limit_packets: int | None
    queued_packets: int
    queued_bytes: int
    drops: int
    requeues: int
    limit_drops: int | None = None
    sent_packets: int = 0
    sent_bytes: int = 0
    flows: int | None = None
    ecn_marks: int | None = None
    target_us: int | None = None
    handle: str = ""
    parent: str = ""

    @property
    def label(self) -> str:
        """The qdisc for messages: ``mq/fq_codel``."""
        return "/".join((self.kind, ",".join(self.leaves))) if self.leaves else self.kind

    @property
    def counts(self) -> Counts:
        counts = {
            "packets": self.sent_packets,
            "bytes": self.sent_bytes,
            "drops": self.drops,
            "requeues": self.requeues,
            "limit_drops": self.limit_drops,
            "ecn_marks": self.ecn_marks,
        }
        return {name: count for name, count in counts.items() if count is not None}


@dataclass(frozen=True)
class Device:
    """A virtual link.

    Attributes:
        netns: name of its namespace; "": the command's own.
        kind: "tun", "tap", "macvtap", "ipvtap", or a tunnel's ("vxlan", "wireguard" ...).
        tunnel: it is a tunnel in the kernel, without a ring.
        up: it is set up (IFF_UP).
        carrier: it is open (IFF_LOWER_UP); of a tunnel: it works.
        driver: None for a tunnel.
        enabled: whether a full ring stops its sender.
        txqueuelen: slots of each ring, and the limit of some qdiscs.
        queues: attached queues; queues_max: how many it can have.
        multi_queue, vnet_hdr, persist: flags it was created with; None: not known.
        owners: processes that have it open, as far as they can be inspected.
        tx_packets, tx_bytes: sent to the reader, or into the tunnel. The kernel counts them as
            received for a macvtap or ipvtap (DIRECT).
        tx_dropped: packets for the reader that the driver dropped, such as at a full ring.
        rx_packets, rx_bytes, rx_dropped: the opposite direction.
        checksums: it is persistent, and its reader must fill in checksums, which needs vnet_hdr.
        altnames: its alternative names (``ip link property``).
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
    altnames: tuple[str, ...] = ()

    def packet_bytes(self, packets: float | None, size: float | None) -> float:
        """Return the mean size of the packets, bytes; if there are none, of all since its creation.

        If none was ever sent, it is the MTU.

        Args:
            packets, size: packets and their bytes, or the rates of both; None: unknown.
        """
        if packets and size is not None:
            mean = size / packets
        else:
            mean = self.tx_bytes / self.tx_packets if self.tx_packets else self.mtu
        return max(mean, 64.0)

    @property
    def direct(self) -> bool:
        """Whether it has no qdisc before its ring (DIRECT)."""
        return self.kind in DIRECT

    @property
    def ours(self) -> bool:
        """Whether nodrop's driver or livepatch serves it."""
        return self.driver in (Driver.NODROP, Driver.LIVE)

    @property
    def vhost(self) -> bool:
        """Whether vhost-net reads it."""
        return any(owner.vhost for owner in self.owners)

    @property
    def label(self) -> str:
        """The name for messages: ``tun0``, or ``blue/tun0`` in another namespace."""
        return f"{self.netns}/{self.name}" if self.netns else self.name

    def named(self, names: Collection[str]) -> bool:
        """Return whether one of the names is this device's; names and patterns as for 'nodrop set'.

        Args:
            names: ``tun0``, ``vnet*``, and with a namespace ``blue/tun0``, ``blue/*``; empty: true.
        """
        prefix = self.label.removesuffix(self.name)
        own = {at + name for at in ("", prefix) for name in (self.name, *self.altnames)}
        return not names or any(
            name in own or matches(name, self.label if "/" in name else self.name) for name in names
        )

    @cached_property
    def totals(self) -> dict[str, int]:
        """nodrop's statistics, each summed over all queues."""
        return total(queue.counters for queue in self.queue)

    def counter(self, name: str) -> int | None:
        """Return the sum of one of nodrop's statistics over all queues; None: not reported."""
        return self.totals.get(name)

    @property
    def drops_by_cause(self) -> dict[str, int]:
        return by_cause(self.totals)

    @cached_property
    def counters(self) -> Counters:
        return Counters(
            link={
                "tx_packets": self.tx_packets,
                "tx_bytes": self.tx_bytes,
                "tx_dropped": self.tx_dropped,
                "rx_packets": self.rx_packets,
                "rx_bytes": self.rx_bytes,
                "rx_dropped": self.rx_dropped,
            },
            qdisc=self.qdisc.counts,
            queues={queue.index: queue.counters for queue in self.queue},
            bands={queue.index: queue.qdisc.counts for queue in self.queue if queue.qdisc},
            qdisc_kind=self.qdisc.kind,
        )


@dataclass(frozen=True)
class Module:
    """The state of a driver module.

    Attributes:
        loaded: it is loaded or built in.
        built_in: the kernel's own is part of its image. It cannot be replaced; nodrop's tun goes
            beside it.
        driver: which driver it is, of two that of new devices; STOCK if it is not loaded.
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


def driver_cell(device: Device) -> Cell:
    """Return the driver of a device with a ring, for a table."""
    if device.driver is Driver.STOCK:
        return (str(device.driver), "yellow")
    return (str(device.driver), "green") if device.enabled else (f"{device.driver} off", "yellow")


def host_json(host: Host) -> dict[str, Any]:
    return {
        "kernel": host.release,
        "tun": _module_json(host.tun),
        "vhost_net": _module_json(host.vhost_net),
        "tap": _module_json(host.tap),
        "default_on": host.default_on,
        "guard_ms": host.guard_ms,
        "default_qdisc": host.default_qdisc or None,
        "hidden_processes": host.hidden_processes,
        "unread_namespaces": host.unread,
        "unreached_namespaces": host.unreached,
    }


def _module_json(module: Module) -> dict[str, Any]:
    return {**vars(module), "driver": str(module.driver), "version": module.version or None}


def device_json(device: Device) -> dict[str, Any]:
    same = (
        *("name", "ifindex", "netns_inode", "kind", "tunnel", "up", "carrier", "queues"),
        *("queues_max", "multi_queue", "vnet_hdr", "persist", "vhost"),
        *("tx_packets", "tx_bytes", "rx_packets", "rx_bytes"),
    )
    return {
        **{name: getattr(device, name) for name in same},
        "netns": device.netns or None,
        "mtu_bytes": device.mtu,
        "driver": device.driver and str(device.driver),
        "backpressure": device.enabled,
        "txqueuelen_packets": device.txqueuelen,
        "qdisc": _qdisc_json(device.qdisc),
        "owners": [{**owner_json(owner), **_cgroup_json(device, owner)} for owner in device.owners],
        "tx_dropped_packets": device.tx_dropped,
        "rx_dropped_packets": device.rx_dropped,
        **{name: device.counter(name) for name in ("stops", "wakes", "guard_trips")},
        "drops_by_cause_packets": device.drops_by_cause,
        "queue": [_queue_json(queue) for queue in device.queue],
    }


def owner_json(owner: Owner) -> dict[str, Any]:
    return {name: vars(owner)[name] for name in ("pid", "name", "user", "queues", "vhost")}


def _cgroup_json(device: Device, owner: Owner) -> dict[str, Any]:
    workers = owner.vhost_workers
    # A single worker of a process with a single device serves that device's single queue.
    queue = 0 if device.queues == len(workers) == 1 and workers[0]["device_known"] else None
    return {
        **vars(owner.cgroup),
        "vhost_workers": [{**worker, "queue": queue} for worker in workers],
    }


def _qdisc_json(qdisc: Qdisc) -> dict[str, Any]:
    return {
        "kind": qdisc.kind,
        "leaves": list(qdisc.leaves),
        "limit_packets": qdisc.limit_packets,
        "queued_packets": qdisc.queued_packets,
        "queued_bytes": qdisc.queued_bytes,
        "dropped_packets": qdisc.drops,
        "requeued_packets": qdisc.requeues,
    }


def gauges_json(queue: Queue) -> dict[str, Any]:
    names = ("ring_packets", "limit_packets", "pace_ns", "stalled_ms")
    return {name: getattr(queue, name) for name in names}


def _queue_json(queue: Queue) -> dict[str, Any]:
    return {"index": queue.index, **gauges_json(queue), "counters": queue.counts}
