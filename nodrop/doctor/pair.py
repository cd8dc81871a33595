# SPDX-License-Identifier: GPL-2.0-only
"""A queue in both samples: what its reader took, since when it takes nothing, its delays."""

from __future__ import annotations

from dataclasses import dataclass

from nodrop.host.model import Qdisc, Queue, by_cause, increase


@dataclass(frozen=True)
class Pair:
    """A queue in both samples.

    Attributes:
        before, now: the queue in the first and in the second sample.
        taken: packets that its reader took in between; None: unknown.
        qdisc_before, qdisc: what feeds it: its qdisc below mq, or the device's.
        seconds: time between the samples.
    """

    before: Queue
    now: Queue
    taken: int | None
    qdisc_before: Qdisc
    qdisc: Qdisc
    seconds: float

    def counted(self, name: str) -> int:
        """Return the increase of a counter; 0 if the driver does not have it."""
        here, was = self.now.counters, self.before.counters
        return max(0, here.get(name, 0) - was.get(name, 0))

    @property
    def ring(self) -> int:
        """Packets in the ring now; 0 if the driver does not report them."""
        return self.now.ring_packets or 0

    @property
    def unread(self) -> bool:
        """Whether there were packets all the time, and the reader took none.

        A reader may pause between two reads, so only the stall guard is sure of a shorter time.
        """
        if self.taken != 0:
            return False
        if self.counted("guard_trips") or self.counted("drop_guard"):
            return True
        sure = self.seconds >= _SURE_S or bool(self.now.stalled_ms)
        return sure and self.ring >= (self.before.ring_packets or 0) > 0

    @property
    def trickles(self) -> bool:
        """Whether the reader took packets, and is stalled nevertheless."""
        return bool(self.taken) and bool(self.now.stalled_ms)

    @property
    def taken_s(self) -> float:
        """Packets per second that the reader took; 0 if that is not known."""
        return (self.taken or 0) / self.seconds

    @property
    def still(self) -> bool:
        """Whether packets waited in the ring, and nothing notified the reader."""
        return self.unread and not self.loses and not self.counted("guard_trips")

    @property
    def backs_up(self) -> bool:
        """Whether the reader took packets, and left some in the ring and in the qdisc."""
        qdisc = min(self.qdisc_before.queued_packets, self.qdisc.queued_packets)
        return bool(self.taken) and min(self.before.ring_packets or 0, self.ring, qdisc) > 0

    @property
    def loses(self) -> bool:
        """Whether senders lose packets or time by it now."""
        dropped = sum(max(0, count) for count in self._drops.values())
        blocked = self.qdisc.queued_packets > 0 and self.left[0] == 0
        return dropped > 0 or blocked or self.ring > (self.before.ring_packets or 0)

    @property
    def _drops(self) -> dict[str, int]:
        return {name: self.counted(f"drop_{name}") for name in by_cause(self.now.counters)}

    @property
    def left(self) -> tuple[int, int]:
        """Packets and bytes that left the qdisc between the samples; negative: it is a new one."""
        was, here = self.qdisc_before, self.qdisc
        return here.sent_packets - was.sent_packets, here.sent_bytes - was.sent_bytes

    @property
    def since_s(self) -> float:
        """For how long the reader is stalled, s, or at least, takes nothing."""
        return (self.now.stalled_ms or 0) / 1e3 or self.seconds

    @property
    def label(self) -> str:
        """The queue for messages: ``queue 1 for 12.3 s``."""
        least = "" if self.now.stalled_ms else "at least "
        return f"queue {self.now.index} for {least}{self.since_s:,.1f} s"

    @property
    def measured(self) -> bool:
        """Whether the driver reports what is in the ring and left it, and the qdisc is the same."""
        counted = self.now.ring_packets is not None and self.taken is not None
        return counted and self.left[0] >= 0

    @property
    def ring_ms(self) -> float | None:
        """How long the last packet of the ring waits for the reader, ms; None: none leaves."""
        if not self.ring:
            return 0.0
        if not self.taken:
            return None
        return self.ring * (self.now.pace_ns or self.seconds * 1e9 / self.taken) / 1e6

    @property
    def qdisc_ms(self) -> float | None:
        """How long the last packet of the qdisc waits, ms; None: none leaves."""
        if not self.qdisc.queued_packets:
            return 0.0
        _, left = self.left
        return self.qdisc.queued_bytes / left * self.seconds * 1e3 if left > 0 else None


_SURE_S = 0.9


def taken(before: Queue, now: Queue, delivered: int | None) -> int | None:
    """Return the packets that a queue's reader took; None: unknown, or it is a new queue.

    Args:
        delivered: the same, of a driver that does not count it; None: unknown.
    """
    if "taken" not in now.counters or "taken" not in before.counters:
        return delivered
    grown = increase("taken", before.counters["taken"], now.counters["taken"])
    return grown if grown >= 0 else None
