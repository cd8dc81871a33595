# SPDX-License-Identifier: GPL-2.0-only
"""One whole screen of ``nodrop top``, as lines."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from nodrop import columns as tables
from nodrop.screen import Screen
from nodrop.top import view
from nodrop.top.look import Look
from nodrop.top.rates import Row
from nodrop.top.view import View

HELP = """\
q Ctrl-C     quit                     space    refresh now
D P B        sort by drops, packets, bytes
S L F N      ... by stops, wait (latency), ring fill, name
r            reverse                  1 Q      each queue, too
up down PgUp PgDn Home End            scroll

PKT/s BIT/s    given to the reader    DROP/s CAUSE  lost by ring and driver
STOP/s WAKE/s  of the queue           KICK/s  how often the reader called senders
RING   packets in it / its slots      BQL     bytes in the ring / their limit
QUEUE  packets in the qdisc           QDROP/s dropped by it   FLOWS  of fq_codel
WAIT   an estimate: what waits in qdisc and ring / what leaves
-      not known (stock drivers do not say what the ring holds)

Any key goes back.
""".splitlines()
_AROUND = 4
"""Lines that are not rows: two above, the titles, one below."""


@dataclass(frozen=True)
class Frame:
    """A screen.

    Attributes:
        lines: as many as the terminal has, or fewer.
        offset: how many lines of the table are above the first that is shown.
        page: how many lines of the table are shown.
    """

    lines: list[str]
    offset: int
    page: int


def help_frame(width: int, height: int) -> list[str]:
    """Return the screen that explains keys and columns."""
    return [fit(line, width) for line in HELP][:height]


def frame(
    look: Look,
    chosen: View,
    console: Screen,
    size: tuple[int, int],
    title: str,
    offset: int,
) -> Frame:
    """Return the screen.

    Args:
        size: columns and lines of the terminal.
        title: the first line.
        offset: as many lines as possible are left out above.
    """
    width, height = size
    rows = chosen.choose(look.rows)
    total = sum(1 + len(row.queues) * chosen.queues for row in rows)
    page = max(height - _AROUND, 1)
    offset = max(min(offset, total - page), 0)
    titles, cells = view.table(rows, chosen.sort, queues=chosen.queues, first=offset, most=page)
    screen = replace(console, width=width)
    table = screen.layout(titles, cells)
    lines = [
        screen.paint(fit(title, width), "bold"),
        fit(summary(look.rows, rows, chosen), width),
        *table.lines,
    ][: max(height - 1, 0)]
    lines += [""] * (height - 1 - len(lines))
    seen = f"{offset + 1}-{min(offset + page, total)} of {total}" if total > page else ""
    hidden = f"{len(table.left_out)} columns hidden" if table.left_out else ""
    last = fit("   ".join(filter(None, ("q quit  h help", seen, hidden))), width)
    return Frame([*lines, screen.paint(last, "dim")], offset, page)


def summary(every: list[Row], shown: list[Row], chosen: View) -> str:
    """Return one line on all devices and on how they are shown."""
    packets = sum(row.link.get("tx_packets", 0.0) for row in shown)
    bits = sum(row.link.get("tx_bytes", 0.0) for row in shown) * 8
    drops = sum(row.lost or 0.0 for row in shown)
    stops = sum(row.counters.get("stops", 0.0) for row in shown)
    of = f"{len(shown)} of {len(every)}" if len(shown) != len(every) else str(len(every))
    parts = [
        f"{of} device{'' if len(every) == 1 else 's'}",
        f"by {chosen.sort}{' reversed' if chosen.reverse else ''}",
        f"{view.short(packets)} pkt/s",
        f"{view.short(bits)}bit/s",
        f"{view.short(drops)} drops/s",
        f"{view.short(stops)} stops/s",
    ]
    return ", ".join(parts)


def title(look: Look, headline: str, interval_s: float) -> str:
    """Return the first line: when, how often, and what the machine runs."""
    clock = time.strftime("%H:%M:%S", time.localtime(look.time_s))
    return f"nodrop top {clock}, every {interval_s:g} s: {headline}"


def fit(text: str, width: int) -> str:
    """Return a text in one line, cut off where the terminal ends."""
    text = tables.clean(text)
    while tables.width(text) > width:
        text = text[:-1]
    return text
