# SPDX-License-Identifier: GPL-2.0-only
"""The check of where packets wait: in the ring, or in the qdisc before it."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import RING, Verdict, note, ok
from nodrop.doctor.look import Link, Look
from nodrop.doctor.pair import Pair
from nodrop.doctor.queueing import PLAIN

_LONG_MS = 20.0
_FASTER = "# give the reader less work or more CPU time; see reader-starved, reader-saturated"


@RING("delay")
def delay(look: Look, link: Link) -> Verdict | None:
    """Packets wait for long, in the ring or in the qdisc."""
    known = [one for one in link.queues if one.measured]
    if not known:
        return None
    worst = max(known, key=_least_ms)
    name = link.now.qdisc.label if worst.now.qdisc is None else worst.qdisc.kind
    seen = f"queue {worst.now.index}: {_part('the ring', worst.ring, worst.ring_ms, link)}"
    waits = {"ring_packets": worst.ring, "ring_wait_ms": worst.ring_ms}
    if not link.now.direct:
        packets = worst.qdisc.queued_packets
        seen += f"; {_part(name, packets, worst.qdisc_ms, link)}"
        waits |= {"qdisc_packets": packets, "qdisc_wait_ms": worst.qdisc_ms}
    numbers = {key: value for key, value in waits.items() if value is not None}
    numbers["queue"] = worst.now.index
    if _least_ms(worst) < _LONG_MS:
        return ok(seen, **numbers)
    cost, fix = _where(look, link, worst)
    return note(seen, cost, *fix, **numbers)


def _least_ms(pair: Pair) -> float:
    """Return the delay in both; where nothing moves, the time between the samples."""
    return sum(pair.seconds * 1e3 if ms is None else ms for ms in (pair.ring_ms, pair.qdisc_ms))


def _part(where: str, packets: int, wait_ms: float | None, link: Link) -> str:
    if not packets:
        return f"nothing in {where}"
    if wait_ms is None:
        return f"{packets} packets in {where}, none left it in {link.seconds:.1f} s"
    return f"{wait_ms:,.{1 if wait_ms < 10 else 0}f} ms in {where} ({packets} packets)"


def _where(look: Look, link: Link, pair: Pair) -> tuple[str, tuple[str, ...]]:
    """Return where most of the delay is, and what shortens it."""
    ring_ms, qdisc_ms = pair.ring_ms, pair.qdisc_ms
    if ring_ms is None or qdisc_ms is None:
        cost = "where no packet leaves, the delay has no end yet"
        return cost, ("# see reader-stuck, qdisc-stalled",)
    if ring_ms > qdisc_ms:
        cost = "most of it in the ring: only a faster reader shortens that"
        return cost, fixes.flow_control(look, link) or (_FASTER,)
    cost = "most of it in the qdisc: its senders are faster than the reader or a shaper"
    return cost, (fixes.fq_codel(link.now),) if pair.qdisc.kind in PLAIN else (_FASTER,)
