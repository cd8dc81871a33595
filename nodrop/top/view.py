# SPDX-License-Identifier: GPL-2.0-only
"""Select, sort and lay out the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from nodrop.columns import ESSENTIAL, Cell, Column
from nodrop.host.describe import driver_cell
from nodrop.host.model import Device
from nodrop.top.rates import QueueRow, Rates, Row

UNKNOWN = "-"
LEAST_S, MOST_S = 0.1, 3600.0
"""Bounds of --interval, seconds."""


class Sort(StrEnum):
    """Sort keys: the largest value first, names from A to Z."""

    DROPS = "drops"
    PACKETS = "packets"
    BYTES = "bytes"
    STOPS = "stops"
    WAIT = "wait"
    FILL = "fill"
    NAME = "name"


@dataclass(frozen=True)
class View:
    """The options that select what is shown.

    Attributes:
        names: devices of the command line, as NAME or NAMESPACE/NAME; empty: all.
        limit: maximum number of rows; None: all.
    """

    sort: Sort = Sort.DROPS
    queues: bool = False
    names: frozenset[str] = frozenset()
    limit: int | None = None

    def choose(self, rows: Iterable[Row]) -> list[Row]:
        """Return the rows to show, sorted, up to the limit."""
        chosen = sorted(filter(self._wanted, rows), key=lambda row: row.device.label)
        if self.sort is not Sort.NAME:
            # Unknown values come last; of equal ones, the busier device comes first.
            chosen.sort(key=lambda row: row.link.get("tx_packets", -1.0), reverse=True)
            chosen.sort(key=lambda row: _known(_KEYS[self.sort](row)), reverse=True)
        return chosen[: self.limit]

    def _wanted(self, row: Row) -> bool:
        return not self.names or bool({row.device.name, row.device.label} & self.names)


def _known(value: float | None) -> float:
    return -1.0 if value is None else value


_KEYS: dict[Sort, Callable[[Row], float | None]] = {
    Sort.DROPS: lambda row: None if (n := row.dropped) is None else n + row.qdisc.get("drops", 0),
    Sort.PACKETS: lambda row: row.link.get("tx_packets"),
    Sort.BYTES: lambda row: row.link.get("tx_bytes"),
    Sort.STOPS: lambda row: row.counters.get("stops"),
    Sort.WAIT: lambda row: row.waits.both_ms,
    Sort.FILL: lambda row: row.ring_packets,
}


def table(
    rows: Sequence[Row], sort: Sort, *, queues: bool
) -> tuple[list[Column], list[Sequence[Cell]]]:
    """Return columns and lines.

    The sort key's column is never left out; columns without any known value are left out first.

    Args:
        queues: add a line for each queue.
    """
    cells = lines(rows, queues=queues)
    titles = _columns(sort, queues=queues)
    for index, column in enumerate(titles):
        unknown = column.importance < ESSENTIAL and all(line[index] == UNKNOWN for line in cells)
        if unknown:
            titles[index] = replace(column, importance=-1)
    return titles, cells


def summary(every: Sequence[Row], shown: Sequence[Row], chosen: View) -> str:
    """Return one line of totals, with the number of devices and the sort key."""
    packets = sum(row.link.get("tx_packets", 0.0) for row in shown)
    bits = sum(row.link.get("tx_bytes", 0.0) for row in shown) * 8
    drops = sum(row.dropped or 0.0 for row in shown)
    stops = sum(row.counters.get("stops", 0.0) for row in shown)
    of = f"{len(shown)} of {len(every)}" if len(shown) != len(every) else str(len(every))
    return (
        f"{of} device{'' if len(every) == 1 else 's'}, "
        f"by {chosen.sort}, "
        f"{short(packets)} pkt/s, {short(bits)}bit/s, "
        f"{short(drops)} drops/s, {short(stops)} stops/s"
    )


def _columns(sort: Sort, *, queues: bool) -> list[Column]:
    """Return the columns; titles are padded to the width of the numbers, which change."""
    return [
        Column("DEVICE"),
        *([Column("Q", right=True)] if queues else []),
        Column("DRIVER", 5),
        Column("OWNER", 3),
        Column("PKT/s", right=True),
        Column("BIT/s", _importance(sort, Sort.BYTES, 8), right=True),
        Column("DROP/s", right=True),
        Column("CAUSE", 6),
        Column("STOP/s", _importance(sort, Sort.STOPS, 7), right=True),
        Column("WAKE/s", 2, right=True),
        Column("KICK/s", 2, right=True),
        Column("   RING", _importance(sort, Sort.FILL, 7), right=True),
        Column("LIMIT", 1, right=True),
        Column("QUEUE", 6, right=True),
        Column("QDROP/s", 4, right=True),
        Column("FLOWS", 0, right=True),
        Column("  WAIT", _importance(sort, Sort.WAIT, 8), right=True),
    ]


def _importance(sort: Sort, own: Sort, otherwise: int) -> int:
    return ESSENTIAL if sort is own else otherwise


def lines(rows: Sequence[Row], *, queues: bool) -> list[Sequence[Cell]]:
    """Return a line for each row, and with ``queues`` one for each queue."""
    found: list[Sequence[Cell]] = []
    for row in rows:
        found.append(_device(row, queues=queues))
        if queues and not row.device.tunnel:
            found += [_queue(row, one) for one in row.queues]
    return found


def _device(row: Row, *, queues: bool) -> Sequence[Cell]:
    device = row.device
    return (
        (device.label, "bold"),
        *([""] if queues else []),
        device.kind if device.driver is None else driver_cell(device),
        _owner(device),
        short(row.link.get("tx_packets")),
        short(_bits(row.link.get("tx_bytes"))),
        _drops(row.dropped),
        _causes(row.drops),
        *_flow_control(row.counters),
        _ring(row.ring_packets, device.txqueuelen * max(device.queues, 1)),
        _limit(device.counter("limit")),
        str(device.qdisc.queued_packets),
        _drops(row.qdisc.get("drops"), "yellow"),
        UNKNOWN if device.qdisc.flows is None else str(device.qdisc.flows),
        wait(row.waits.both_ms),
    )


def _queue(row: Row, found: QueueRow) -> Sequence[Cell]:
    queue, drops = found.queue, found.drops
    return (
        "",
        str(queue.index),
        "",
        "",
        short(found.packets),
        short(_bits(found.bytes)),
        _drops(sum(drops.values()) if drops else None),
        _causes(drops),
        *_flow_control(found.counters),
        _ring(queue.ring_packets, row.device.txqueuelen),
        _limit(queue.limit_packets),
        str(queue.qdisc.queued_packets) if queue.qdisc else UNKNOWN,
        _drops(found.qdisc.get("drops"), "yellow") if queue.qdisc else UNKNOWN,
        UNKNOWN if queue.qdisc is None or queue.qdisc.flows is None else str(queue.qdisc.flows),
        wait(found.waits.both_ms),
    )


def _owner(device: Device) -> str:
    if not device.owners:
        return "kernel" if device.tunnel else UNKNOWN
    return device.owners[0].name + ("+vhost" if device.vhost else "")


def _drops(rate: float | None, style: str = "red") -> Cell:
    return (short(rate), style if rate else "")


def _causes(drops: Rates) -> str:
    """Return the causes, the worst first; with rates if there are several."""
    worst = sorted(((rate, name) for name, rate in drops.items() if rate), reverse=True)
    if len(worst) == 1:
        return worst[0][1]
    return " ".join(f"{name}:{short(rate)}" for rate, name in worst) or UNKNOWN


def _flow_control(counters: Rates) -> tuple[str, str, str]:
    kicks = counters["kicks"] + counters.get("kicks_here", 0.0) if "kicks" in counters else None
    return short(counters.get("stops")), short(counters.get("wakes")), short(kicks)


def _ring(packets: int | None, slots: int) -> str:
    return UNKNOWN if packets is None else f"{packets}/{slots}"


def _limit(packets: int | None) -> str:
    return UNKNOWN if packets is None else str(packets)


def _bits(size: float | None) -> float | None:
    return None if size is None else size * 8


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


def wait(value: float | None) -> str:
    """Return a delay given in ms, marked as an estimate: ``~3.4ms``."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"~{value * 1000:.0f}us" if value else "0"
    if value < 1000:
        return f"~{value:.0f}ms" if value >= 100 else f"~{value:.1f}ms"
    return f"~{value / 1000:.1f}s"
