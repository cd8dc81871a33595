# SPDX-License-Identifier: GPL-2.0-only
"""``nodrop top``: rates of packets, drops and stops, and queueing delay, refreshed.

A device is identified by its namespace and its ifindex. The rates of a new one, and of a new queue
or qdisc, are unknown until the next sample, so no rate is negative.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nodrop import screen
from nodrop.commands import common
from nodrop.commands.common import positive_int, print_json, seconds_from
from nodrop.commands.status import headline
from nodrop.host.counters import Counters, Counts, by_cause, total, wait_ms
from nodrop.host.model import Device, Host, Qdisc, Queue, driver_cell, gauges_json, owner_json
from nodrop.host.read import build, read
from nodrop.screen import ESSENTIAL, Cell, Column, Screen, clean

INTERVAL_S = 3.0
_CLEAR = "\033[H\033[J"
Rates = dict[str, float]
"""Counter -> rate per second; empty: unknown."""

FIRST_S = 1.0
"""Longest time until the second sample, without which there are no rates."""
UNKNOWN = "-"
SORTS = ("drops", "wait")
LEAST_S, MOST_S = 0.1, 3600.0
"""Bounds of --interval, seconds."""
_SKEW = 0.1
"""Share of the driver's drops that may lack in the device's: they are not read at the same time."""
_COLUMNS = (
    Column("DEVICE"),
    Column("DRIVER", 5),
    Column("OWNER", 3),
    Column("PKT/s", right=True),
    Column("BIT/s", 8, right=True),
    Column("DROP/s", right=True),
    Column("CAUSE", 6),
    Column("STOP/s", 7, right=True),
    Column("WAKE/s", 2, right=True),
    Column("KICK/s", 2, right=True),
    Column("   RING", 7, right=True),
    Column("LIMIT", 1, right=True),
    Column("QUEUE", 6, right=True),
    Column("BACKLOG", 2, right=True),
    Column("QDROP/s", 4, right=True),
    Column("FLOWS", 0, right=True),
    Column("  WAIT", 8, right=True),
)
"""Titles are padded to the width of the numbers, which change."""
_COUNTERS = ("stops", "stops_limit", "wakes", "kicks", "kicks_here", "guard_trips")


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "top",
        description="Show packets, drops by cause, stops, packets in the ring and estimated "
        "queueing delay of TUN, TAP, macvtap, ipvtap and tunnel devices, live, until Ctrl-C.",
    )
    common.add_device_arguments(parser)
    parser.add_argument("--queues", action="store_true", help="show each queue, too")
    parser.add_argument(
        "--interval",
        type=seconds_from(LEAST_S, MOST_S),
        default=INTERVAL_S,
        metavar="S",
        help="seconds between refreshes, 0.1 to 3600 (3)",
    )
    parser.add_argument("--count", type=positive_int, metavar="N", help="exit after N refreshes")
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0], help="the most first (drops)")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="show at most N devices")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    common.check_namespaces(arguments)
    console = screen.console(arguments)
    samples = _samples(arguments)
    first = next(samples)
    common.select(first.host, arguments.device)
    live = screen.can_move(console.stream) and not arguments.json
    if live:
        _draw(first, arguments, console)
    for number, refresh in enumerate(samples):
        if arguments.json:
            _print_json(refresh, arguments, number + 1)
        elif live:
            _draw(refresh, arguments, console)
        else:
            if number:
                console.print()
            _print_table(refresh, arguments, console)
            _remark(arguments, refresh, first=number == 0)
    return 0


def _draw(refresh: Refresh, arguments: argparse.Namespace, console: Screen) -> None:
    """Redraw the terminal with as many lines as fit."""
    rows = chosen(refresh.rows, arguments)
    clock = time.strftime("%H:%M:%S", time.localtime(refresh.time_s))
    head = [f"{clock}  {headline(refresh.host)}", summary(refresh.rows, rows, arguments.sort)]
    lines = [console.paint(clean(line)[: console.width], "dim") for line in head]
    lines += console.layout(*table(rows, arguments))[0]
    height = os.get_terminal_size(console.stream.fileno()).lines or 24
    console.stream.write(_CLEAR + "".join(f"{line}\n" for line in lines[: height - 1]))
    console.stream.flush()


def _print_json(refresh: Refresh, arguments: argparse.Namespace, number: int) -> None:
    print_json(
        "top",
        {
            "refresh": number,
            "time_s": refresh.time_s,
            "kernel": refresh.host.release,
            "hidden_processes": refresh.host.hidden_processes,
            "unread_namespaces": refresh.host.unread,
            "unreached_namespaces": refresh.host.unreached,
            "devices_in_all": len(refresh.rows),
            "devices": [
                row_json(row, queues=arguments.queues) for row in chosen(refresh.rows, arguments)
            ],
        },
        compact=True,
    )


def _print_table(refresh: Refresh, arguments: argparse.Namespace, console: Screen) -> None:
    rows = chosen(refresh.rows, arguments)
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(refresh.time_s))
    console.print(f"{clock}  {summary(refresh.rows, rows, arguments.sort)}", "dim")
    if rows:
        console.table(*table(rows, arguments))
    else:
        gone = f"Not here now: {', '.join(sorted(arguments.device))}."
        console.print(gone if arguments.device else common.NO_DEVICE)
    console.stream.flush()


def _remark(arguments: argparse.Namespace, refresh: Refresh, *, first: bool) -> None:
    """Print once what could not be read."""
    if not first or arguments.quiet:
        return
    messages = screen.messages(arguments)
    if refresh.host.hidden_processes:
        messages.print(common.hidden_remark(refresh.host), "dim")
    for line in common.unread_remarks(refresh.host):
        messages.print(line, "dim")


class FlowRate(NamedTuple):
    """The rate of what leaves, per second; None: unknown."""

    packets: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class Backlog:
    """What is queued, and for how long by Little's law: divided by the rate of what leaves.

    Attributes:
        qdisc_bytes: 0 if no packet to the reader passes a qdisc.
        ring_bytes: the ring's packets times the mean size of the device's packets; None: unknown,
            because the driver does not report its ring's packets.
        qdisc_ms, ring_ms: None: unknown, because nothing leaves, or for the same reason.
    """

    qdisc_bytes: int | None = None
    ring_bytes: int | None = None
    qdisc_ms: float | None = None
    ring_ms: float | None = None

    @property
    def both_bytes(self) -> int | None:
        if self.qdisc_bytes is None or self.ring_bytes is None:
            return None
        return self.qdisc_bytes + self.ring_bytes

    @property
    def both_ms(self) -> float | None:
        if self.qdisc_ms is None or self.ring_ms is None:
            return None
        return self.qdisc_ms + self.ring_ms


@dataclass(frozen=True)
class TopRow:
    """What a device and each of its queues have, per second.

    Attributes:
        flow: passed to the reader; of one of several queues: packets taken by the reader, unknown
            where the driver does not count that, and bytes passed to the driver by mq.
        counters: nodrop's counters, of a device over all queues.
        qdisc: counters of the qdisc.
        drops: packets that the driver dropped, by cause; empty: unknown.
    """

    flow: FlowRate
    counters: Rates
    qdisc: Rates
    drops: Rates
    backlog: Backlog

    @property
    def dropped(self) -> float | None:
        """Packets per second that the driver dropped; None: unknown."""
        return sum(self.drops.values()) if self.drops else None


@dataclass(frozen=True)
class QueueRow(TopRow):
    """One queue of a device."""

    queue: Queue


@dataclass(frozen=True)
class DeviceRow(TopRow):
    """One device, now.

    Attributes:
        interval_s: time between the samples; None: the device is new.
        link: packets, bytes and drops of the device, per second.
        queues: its queues; a tunnel has none.
    """

    device: Device
    interval_s: float | None
    link: Rates
    queues: tuple[QueueRow, ...]

    @property
    def lost(self) -> float | None:
        """Packets per second that the driver and the qdisc dropped; None: unknown."""
        return None if self.dropped is None else self.dropped + self.qdisc.get("drops", 0.0)

    @property
    def ring_packets(self) -> int | None:
        """Packets in all rings now; None: the driver does not report them."""
        return self.device.counter("ring")


class RateMeter:
    """Stores the last sample, and computes the rates to the next one."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], tuple[float, Counters]] = {}

    def rows(self, devices: Iterable[Device], times_s: Mapping[int, float]) -> list[DeviceRow]:
        """Return a row for each device.

        Args:
            times_s: inode of each namespace -> when it was read, monotonic, seconds.
        """
        now, rows = {}, []
        for device in devices:
            key = device.netns_inode, device.ifindex
            now[key] = times_s[device.netns_inode], device.counters
            before_s, before = self._before.get(key, (now[key][0], Counters()))
            rows.append(_row(device, device.counters.since(before), now[key][0] - before_s))
        self._before = now
        return rows


def _row(device: Device, increase: Counters, seconds: float) -> DeviceRow:
    def rates(counts: Counts) -> Rates:
        return {name: count / seconds for name, count in counts.items()} if seconds > 0 else {}

    def backlog(below: Qdisc | None, ring: int | None, leaves: FlowRate) -> Backlog:
        queued = 0 if device.direct else below.queued_bytes if below else None
        return Backlog(
            qdisc_bytes=queued,
            ring_bytes=None if ring is None else round(ring * size),
            qdisc_ms=wait_ms(queued, leaves.bytes),
            ring_ms=wait_ms(ring, leaves.packets),
        )

    link, qdisc = rates(increase.link), rates(increase.qdisc)
    known = bool(link)
    flow = FlowRate(link.get("tx_packets"), link.get("tx_bytes"))
    size = device.packet_bytes(flow.packets, flow.bytes)
    alone = len(device.queue) == 1
    queues = {index: rates(counts) for index, counts in increase.queues.items()}
    bands = {index: rates(counts) for index, counts in increase.bands.items()}
    rows = []
    for queue in device.queue:
        counters = queues.get(queue.index, {})
        below = queue.qdisc or (device.qdisc if alone else None)
        below_rates = bands.get(queue.index, {}) if queue.qdisc else qdisc if alone else {}
        own = flow if alone and known else _queue_flow(queue, counters, below_rates)
        queued = backlog(below, queue.ring_packets, own)
        rows.append(QueueRow(own, counters, below_rates, by_cause(counters), queued, queue))
    counters = total(queues.values())
    ring = 0 if device.tunnel else device.counter("ring")
    # A tunnel without a qdisc queues nothing itself.
    queueless = device.tunnel and device.qdisc.kind in ("noqueue", "noop")
    return DeviceRow(
        flow=flow,
        counters=counters,
        qdisc=qdisc,
        drops=_drop_rates(device, link, counters) if known else {},
        backlog=Backlog() if queueless else backlog(device.qdisc, ring, flow),
        device=device,
        interval_s=seconds if known else None,
        link=link,
        queues=tuple(rows),
    )


def _queue_flow(queue: Queue, counters: Rates, qdisc: Rates) -> FlowRate:
    """Return what left one of several queues: packets that its reader took, bytes that mq sent.

    The qdisc's packets would be segments: a GSO packet counts as up to 45.
    """
    return FlowRate(counters.get("taken"), qdisc.get("bytes") if queue.qdisc else None)


def _drop_rates(device: Device, link: Rates, counters: Rates) -> Rates:
    """Return the drops by cause; other drivers than nodrop's only have the cause "ring".

    nodrop's driver counts drops at the ring by cause; "other": no reader, a filter, no memory.
    """
    causes = by_cause(counters)
    explained = sum(causes.values())
    rest = max(link["tx_dropped"] - explained, 0.0)
    if rest < _SKEW * explained:
        rest = 0.0
    if device.tunnel:
        return {"tunnel": rest}
    if device.ours:
        return {**causes, "other": rest}
    return {"ring": rest}


@dataclass(frozen=True)
class Refresh:
    """A sample.

    Attributes:
        time_s: seconds since the epoch.
        rows: a row for each device; without rates in the first sample.
    """

    time_s: float
    host: Host
    rows: list[DeviceRow]


def _samples(arguments: argparse.Namespace) -> Iterator[Refresh]:
    """Yield a sample at once, and then one at each refresh.

    Raises:
        NodropError: the namespace does not exist (any more) or cannot be entered, or iproute2 is
            missing.
    """
    meter, interval_s = RateMeter(), min(arguments.interval, FIRST_S)
    due, left = time.monotonic(), arguments.count
    while left is None or left >= 0:
        time.sleep(max(due - time.monotonic(), 0.0))
        # If a sample took longer than the interval, skip the missed ones.
        due = max(due, time.monotonic()) + interval_s
        interval_s, left = arguments.interval, None if left is None else left - 1
        raw = read(arguments.netns, everywhere=arguments.all_namespaces)
        host = build(raw)
        times = {space.inode: space.time_s for space in raw.namespaces}
        yield Refresh(time.time(), host, meter.rows(host.devices, times))


def chosen(rows: Iterable[DeviceRow], arguments: argparse.Namespace) -> list[DeviceRow]:
    """Return the rows to show: those of the named devices, sorted, up to the limit."""
    wanted = [row for row in rows if row.device.named(arguments.device)]
    wanted.sort(key=lambda row: row.device.label)
    # Unknown values come last; of equal ones, the busier device comes first.
    wanted.sort(key=lambda row: row.link.get("tx_packets", -1.0), reverse=True)
    by_wait = arguments.sort == "wait"
    wanted.sort(key=lambda row: _known(row.backlog.both_ms if by_wait else row.lost), reverse=True)
    return wanted[: arguments.limit]


def _known(value: float | None) -> float:
    return -1.0 if value is None else value


def table(
    rows: Sequence[DeviceRow], arguments: argparse.Namespace
) -> tuple[list[Column], list[Sequence[Cell]]]:
    """Return columns and lines; with --queues, a line for each queue, too."""
    columns = [*_COLUMNS]
    if arguments.queues:
        columns.insert(1, Column("Q", right=True))
    if arguments.sort == "wait":
        columns[-1] = replace(columns[-1], importance=ESSENTIAL)
    cells: list[Sequence[Cell]] = []
    for row in rows:
        cells.append(_device_cells(row, queues=arguments.queues))
        if arguments.queues and not row.device.tunnel:
            cells += [_queue_cells(row, queue_row) for queue_row in row.queues]
    return columns, cells


def summary(every: Sequence[DeviceRow], shown: Sequence[DeviceRow], sort: str) -> str:
    """Return one line of totals, with the number of devices and the sort key."""
    packets = sum(row.link.get("tx_packets", 0.0) for row in shown)
    bits = sum(row.link.get("tx_bytes", 0.0) for row in shown) * 8
    drops = sum(row.dropped or 0.0 for row in shown)
    stops = sum(row.counters.get("stops", 0.0) for row in shown)
    of = f"{len(shown)} of {len(every)}" if len(shown) != len(every) else str(len(every))
    return (
        f"{of} device{'' if len(every) == 1 else 's'}, "
        f"by {sort}, "
        f"{short(packets)} pkt/s, {short(bits)}bit/s, "
        f"{short(drops)} drops/s, {short(stops)} stops/s"
    )


def _device_cells(row: DeviceRow, *, queues: bool) -> Sequence[Cell]:
    device = row.device
    slots = device.txqueuelen * max(device.queues, 1)
    return (
        (device.label, "bold"),
        *([""] if queues else []),
        device.kind if device.driver is None else driver_cell(device),
        _owner(device),
        *_cells(row, _ring(row.ring_packets, slots), device.counter("limit"), device.qdisc),
    )


def _queue_cells(row: DeviceRow, queue_row: QueueRow) -> Sequence[Cell]:
    queue = queue_row.queue
    ring = _ring(queue.ring_packets, row.device.txqueuelen)
    cells = _cells(queue_row, ring, queue.limit_packets, queue.qdisc)
    return ("", str(queue.index), "", "", *cells)


def _cells(row: TopRow, ring: str, limit: int | None, qdisc: Qdisc | None) -> Sequence[Cell]:
    """Return the cells from PKT/s on. CAUSE: the worst first, with rates if there are several."""
    worst = sorted(((rate, name) for name, rate in row.drops.items() if rate), reverse=True)
    causes = " ".join(f"{name}:{short(rate)}" for rate, name in worst) or UNKNOWN
    if len(worst) == 1:
        causes = worst[0][1]
    counters, bits, kicks = row.counters, None, None
    if row.flow.bytes is not None:
        bits = row.flow.bytes * 8
    if "kicks" in counters:
        kicks = counters["kicks"] + counters.get("kicks_here", 0.0)
    return (
        short(row.flow.packets),
        short(bits),
        _drop_cell(row.dropped),
        causes,
        short(counters.get("stops")),
        short(counters.get("wakes")),
        short(kicks),
        ring,
        _number(limit),
        _number(qdisc.queued_packets if qdisc else None),
        _bytes(row.backlog.both_bytes),
        _drop_cell(row.qdisc.get("drops") if qdisc else None, "yellow"),
        _number(qdisc.flows if qdisc else None),
        delay(row.backlog.both_ms),
    )


def _owner(device: Device) -> str:
    if not device.owners:
        return "kernel" if device.tunnel else UNKNOWN
    return device.owners[0].name + ("+vhost" if device.vhost else "")


def _drop_cell(rate: float | None, style: str = "red") -> Cell:
    return (short(rate), style if rate else "")


def _ring(packets: int | None, slots: int) -> str:
    return UNKNOWN if packets is None else f"{packets}/{slots}"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _bytes(value: int | None) -> str:
    """Return a number of bytes, of which a part is an estimate: ``~1.2MB``."""
    return f"~{short(value)}B" if value else short(value)


def short(value: float | None) -> str:
    """Return a number in at most six characters: ``0.5``, ``37``, ``12.3k``, ``1.23M``."""
    if value is None:
        return UNKNOWN
    if value < 9.95:
        return f"{value:.1f}" if value % 1 else f"{value:.0f}"
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            digits = 0 if not unit else 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def delay(value: float | None) -> str:
    """Return a delay given in ms, marked as an estimate: ``~3.4ms``."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"~{value * 1000:.0f}us" if value else "0"
    if value < 1000:
        return f"~{value:.0f}ms" if value >= 100 else f"~{value:.1f}ms"
    return f"~{value / 1000:.1f}s"


def row_json(row: DeviceRow, *, queues: bool) -> dict[str, Any]:
    """Return a device; ``queues``: include each of its queues."""
    device = row.device
    return {
        "name": device.name,
        "ifindex": device.ifindex,
        "netns": device.netns or None,
        "netns_inode": device.netns_inode,
        "kind": device.kind,
        "driver": device.driver and str(device.driver),
        "backpressure": device.enabled,
        "owners": [owner_json(owner) for owner in device.owners],
        "interval_s": row.interval_s,
        **{f"{way}_per_s": row.link.get(way) for way in ("rx_packets", "rx_bytes")},
        "rx_dropped_packets_per_s": row.link.get("rx_dropped"),
        "tx_dropped_packets_per_s": row.dropped,
        "ring_packets": row.ring_packets,
        "txqueuelen_packets": device.txqueuelen,
        "qdisc": _qdisc_json(device.qdisc, row.qdisc),
        **_shared_json(row),
        "queue": [_queue_json(queue_row) for queue_row in row.queues] if queues else None,
    }


def _queue_json(row: QueueRow) -> dict[str, Any]:
    queue = row.queue
    return {
        "index": queue.index,
        **gauges_json(queue),
        "qdisc": _qdisc_json(queue.qdisc, row.qdisc) if queue.qdisc else None,
        **_shared_json(row),
    }


def _shared_json(row: TopRow) -> dict[str, Any]:
    return {
        "tx_packets_per_s": row.flow.packets,
        "tx_bytes_per_s": row.flow.bytes,
        "drops_by_cause_packets_per_s": row.drops or None,
        **{f"{name}_per_s": row.counters.get(name) for name in _COUNTERS},
        "qdisc_wait_estimate_ms": row.backlog.qdisc_ms,
        "ring_estimate_bytes": row.backlog.ring_bytes,
        "ring_wait_estimate_ms": row.backlog.ring_ms,
        "wait_estimate_ms": row.backlog.both_ms,
    }


def _qdisc_json(qdisc: Qdisc, rates: Rates) -> dict[str, Any]:
    return {
        "kind": qdisc.label,
        "queued_packets": qdisc.queued_packets,
        "queued_bytes": qdisc.queued_bytes,
        "flows": qdisc.flows,
        "dropped_packets_per_s": rates.get("drops"),
        "requeued_packets_per_s": rates.get("requeues"),
        "ecn_marked_packets_per_s": rates.get("ecn_marks"),
    }
