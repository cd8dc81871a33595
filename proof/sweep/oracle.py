# SPDX-License-Identifier: GPL-2.0-only
"""What must be so in a row, and why.

1. Packets are conserved: what was sent was read, or was freed as lost, and who lost it says so. The
   kernel's tracepoint skb:kfree_skb sees every packet that is freed as lost; the device, the driver
   and the qdisc have counters for what they lose by themselves.
2. What comes one by one comes within a minute, so that a wake-up that is forgotten is seen: the
   stall guard, which would heal it, waits for ten here.
3. With a qdisc the driver finds no ring full: that is what nodrop is for. Nor does it with a
   macvtap or ipvtap, if a socket is charged with each packet.
4. What nothing can hold is lost only in a burst that the ring has no room for. Of a burst of one
   more than that, to a device that nobody reads, what is lost is a number, and no larger than
   with the kernel's own driver (``compare()``). Of a flood it depends on the machine: no bound.
5. In the end nothing is left anywhere: ring, qdisc, the senders' memory.
6. Others go on: a flow to another device.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.guest.timing import wait_until
from proof.sweep import qdisc
from proof.sweep.devices import NAME, Victim, dropped
from proof.sweep.events import LOSES
from proof.sweep.lab import LOWER
from proof.sweep.loops import Tally
from proof.sweep.readers import Readers
from proof.sweep.rows import Row
from proof.sweep.sender import Sender
from proof.sweep.senders import Icmp

CAUSES = frozenset(
    f"drop_{cause}"
    for cause in (
        *("noqueue", "off", "foreign", "guard", "unclaimed"),
        *("unheld", "guard", "full", "rest"),
    )
)
"""The drivers' words for why a packet found no room."""


class Broken(Exception):
    """Something is not so; the text says what."""


@dataclass
class Seen:
    """What was seen of a row.

    Attributes:
        sent: packets of ours.
        lost: of them, what did not come.
        wrong: what is not so; "": all is well.
        seconds: how long it took.
    """

    sent: int = 0
    lost: int = 0
    wrong: str = ""
    seconds: float = 0.0


class Oracle:
    """Watches a row from before its first packet."""

    def __init__(
        self, victim: Victim, sender: Sender, readers: Readers, tally: Tally, *, ours: bool
    ) -> None:
        self.row: Row = victim.row
        self.victim, self.sender, self.readers, self.tally = victim, sender, readers, tally
        self.ours = ours
        """It is nodrop's driver."""
        lab = victim.lab
        self._counts = {"freed": lab.freed, "full": lab.full, "backlog": lab.backlogged}
        if self.row.sender == "xdp":
            # A frame of XDP is no packet yet when it is lost.
            self._counts["veth"] = lambda: dropped(LOWER, "rx")
            self._counts["device"] = victim.dropped
        if isinstance(sender, Icmp):
            self._counts["unmade"] = lab.unmade[bool(victim.netns)]
        self._before = {name: count() for name, count in self._counts.items()}
        self._vague = self.row.sender == "multicast" or (
            self.row.sender == "xdp" and self.row.event == "reattach"
        )

    def causes(self) -> dict[str, int]:
        """Return how many were lost, by who says so."""
        return {name: count() - self._before[name] for name, count in self._counts.items()}

    def came(self) -> int:
        """Return how many came."""
        by_sender = self.sender.came()
        return self.readers.came if by_sender is None else by_sender

    def _qdisc_dropped(self) -> int:
        return 0 if self.row.above else qdisc.look(NAME)[1]

    def missing(self) -> tuple[int, int]:
        """Return how many neither came nor were lost, at the least and at the most.

        A large packet may be lost as one or in pieces. Those who know nothing of multicast free
        what they get as well, and nobody counts a frame of XDP for a device that has no queue just
        now: then there is no least. TCP sends again what was lost.
        """
        if self.row.sender == "tcp":
            rest = self.sender.sent - self.came()
            return rest, rest
        causes = self.causes()
        lost = sum(causes.get(name, 0) for name in ("freed", "veth", "device", "unmade"))
        rest = self.sender.sent - self.came()
        least = rest - lost * self.sender.step
        if self._vague:
            least = min(least, 0)
        return least - self.sender.unsure - self.readers.unsure, rest - lost

    def balanced(self) -> bool:
        """Whether all are accounted for."""
        least, most = self.missing()
        return least <= 0 and (most >= 0 or self._vague)

    def left(self) -> dict[str, int]:
        """Return what is left somewhere; empty: nothing."""
        victim = self.victim
        found = {"charged": self.sender.charged(), "ring": victim.counters().get("ring", 0)}
        # pfifo_fast goes on counting what it lost when it was resized.
        resized = self.row.event == "resize" and self.row.qdisc in ("pfifo_fast", "mq")
        if not self.row.above and not resized:
            found["qdisc"] = qdisc.look(NAME)[0]
        return {name: value for name, value in found.items() if value}

    def arrives(self, what: str) -> None:
        """Send one packet and wait for it; without a qdisc it needs a ring that has room for it.

        Raises:
            Broken: it does not come.
        """
        row, step = self.row, self.sender.step
        # cake drops what waited for long, as a busy machine lets it.
        gone = self._qdisc_dropped if row.qdisc == "cake" else int
        before = self.came() + gone()
        if not wait_until(self.sender.send):
            raise Broken(f"{what} cannot be sent: {self.state()}")
        room = row.held or row.slots >= step

        def arrived() -> bool:
            return self.came() + gone() >= before + step

        if not wait_until(arrived if room else self.balanced):
            raise Broken(f"{what} does not come: {self.state()}")

    def settle(self) -> None:
        """Wait until all are accounted for and nothing is left.

        Raises:
            Broken: some are not.
        """
        if not wait_until(lambda: self.balanced() and not self.left()):
            raise Broken(f"packets are missing, or something is left: {self.state()}")

    def check(self) -> None:
        """Look at what was lost, and why.

        Raises:
            Broken: it should not have been.
        """
        if self.tally.wrong:
            raise Broken(f"{self.tally.wrong}: {self.state()}")
        if self.sender.errors and self.row.event not in LOSES:
            raise Broken(f"{self.sender.errors} calls failed: {self.state()}")
        causes = self.causes()
        if self.row.held and causes["full"]:
            raise Broken(f"{causes['full']} that a qdisc can hold found no room: {self.state()}")
        if self.ours:
            self._check_ours(causes)
        if self.row.event in LOSES or self.row.sender in ("multicast", "xdp"):
            return
        others = causes["freed"] - causes["full"] - causes["backlog"]
        # Who goes past the qdisc is told that the queue is stopped.
        others -= self.sender.refused if self.row.sender == "bypass" else 0
        by_qdisc = self._qdisc_dropped()
        if others > by_qdisc:
            raise Broken(f"{others - by_qdisc} were lost by nobody's word: {self.state()}")

    def _check_ours(self, causes: dict[str, int]) -> None:
        if self.row.charged and causes["full"]:
            raise Broken(f"{causes['full']} of a blocking socket found no room: {self.state()}")
        counters = self.victim.counters()
        told = sum(value for name, value in counters.items() if name in CAUSES)
        if told != causes["full"]:
            raise Broken(f"the driver says that {told} found no room: {self.state()}")
        if self.victim.dropped() < causes["full"]:
            raise Broken(f"the device says that {self.victim.dropped()} were lost: {self.state()}")

    def state(self) -> str:
        """Return all numbers, for a report."""
        counters = {name: value for name, value in self.victim.counters().items() if value}
        return (
            f"sent {self.sender.sent} ({self.sender.refused} refused, {self.sender.errors} errors, "
            f"{self.sender.unsure} unsure), came {self.came()}, lost {self.causes()}, "
            f"left {self.left()}, driver {counters}"
        )


def compare(ours: Seen, stock: Seen) -> str:
    """Return what is worse than with the kernel's own driver in the same row; "": nothing."""
    if ours.lost > stock.lost:
        return f"{ours.lost} of {ours.sent} were lost, with stock {stock.lost}"
    return ""


def known(row: Row) -> str:
    """Return why a row is worse than with stock, if that is known and not mended; "": it is not.

    What is known is printed, and fails nothing.
    """
    if row.sender == "bypass" and not row.above and row.qdisc != "noqueue":
        return (
            "the queue is stopped before the ring is full; who goes past its qdisc loses the rest"
        )
    return ""


def comparable(row: Row) -> bool:
    """Whether a row has a number that is to be compared: an exact one, of what nothing can hold."""
    return not row.held and row.pace == "burst" and row.event == "none" and row.sender != "tcp"
