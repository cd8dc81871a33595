# SPDX-License-Identifier: GPL-2.0-only
"""The account of a round: what was sent came, was lost by a cause that is allowed, or is held.

All numbers are of packets that were handed to the kernel as IPv4, and count from the round's
start. What the kernel throws away passes its tracepoint skb:kfree_skb, whoever does it and
whether he counts it; what is lost elsewhere is missing here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from nodrop.guest.slow import patience
from nodrop.guest.torture.plan import Mode, Round
from nodrop.guest.torture.readers import Taken
from nodrop.guest.torture.senders import Sender
from nodrop.guest.torture.shared import Field
from nodrop.guest.torture.victim import Victim

FULL_CAUSES = frozenset(
    f"drop_{cause}" for cause in ("noqueue", "off", "foreign", "guard", "unclaimed")
)
"""The driver's words for why a packet found no room."""
STILL_S = patience(8.0)
"""When nothing moves for so long, nothing will."""
PAUSE_S = patience(30.0)
"""After this time a sender hangs."""
FEW = 20
MANY = 10**9
_STEP_S, _SETTLE_S = 0.002, 0.003


class Violation(Exception):
    """An invariant does not hold; the text says which, and how far it is off."""


@dataclass(frozen=True)
class Sums:
    """Where the packets of a round are.

    Attributes:
        sent: handed to the kernel.
        delivered: read, by the device's word while it lives, by the readers' when it was remade;
            without the frames.
        freed: thrown away.
        full: of these, because the ring was full.
        refused: of those freed, those whose senders were told.
        held: in qdiscs and rings.
        unsure: so many more may have been made than were sent: calls that failed and do not say,
            what pktgen had in its hand when it stopped.
        frames: read as well, and no packets of a sender: XDP's.
        unseen: so many frames more may have been read: by readers that were killed.
    """

    sent: int
    delivered: int
    freed: int
    full: int
    refused: int
    held: int
    unsure: int
    frames: int
    unseen: int

    @property
    def missing(self) -> int:
        """Packets that nobody has, and nobody threw away."""
        return self.sent - self.delivered - self.freed - self.held

    @property
    def balanced(self) -> bool:
        """Whether nothing is held, missing or too much."""
        return not self.held and -(self.unsure + self.unseen) <= self.missing <= 0

    def __str__(self) -> str:
        words = ", ".join(f"{name} {value}" for name, value in asdict(self).items())
        return f"{words}, missing {self.missing}"


class Balance:
    """The account of a round.

    Args:
        freed: counts what is freed, for whatever reason; of IPv4.
        full: the same, for want of room in a ring.
        queued: counts what is given to the device's qdisc, from before the first packet on, where
            the senders cannot tell: TCP.
    """

    def __init__(
        self,
        plan: Round,
        victim: Victim,
        senders: list[Sender],
        freed: Callable[[], int],
        full: Callable[[], int],
        queued: Callable[[], int] | None = None,
    ) -> None:
        self.plan = plan
        self.victim = victim
        self.senders = senders
        self.generated = 0
        """Packets that pktgen gave to the kernel."""
        self.refused = 0
        """Of these, those that it was told were dropped."""
        self.unsure = 0
        """See Sums; of pktgen."""
        self.written = 0
        """Frames that were written and that an XDP program may have sent back."""
        self._freed, self._full = freed, full
        self._freed_before, self._full_before = freed(), full()
        self._queued = queued

    def sums(self) -> Sums:
        """Return where the packets are now; exact only while no sender sends."""
        sent, refused, unsure = self.generated, self.refused, self.unsure
        made = self.written
        for sender in self.senders:
            job = sender.job
            if sender.kind == "xdp":
                made += job.get(Field.COUNT) + job.get(Field.UNSURE)
                continue
            refused += job.get(Field.REFUSED)
            unsure += job.get(Field.UNSURE)
            if not self._queued or sender.kind == "bypass":
                sent += job.get(Field.COUNT)
        if self._queued:
            sent += self._queued()
        taken = self._taken()
        return Sums(
            sent=sent,
            delivered=self._delivered(taken),
            freed=self._freed() - self._freed_before,
            full=self._full() - self._full_before,
            refused=refused,
            held=self.victim.net.queued(self.victim.index) + self.victim.ring(),
            unsure=unsure,
            frames=taken.frames,
            unseen=min(made, self._unseen()),
        )

    def _taken(self) -> Taken:
        """Return what all readers say that they read."""
        return sum((reader.taken() for reader in self.victim.readers), Taken())

    def _unseen(self) -> int:
        """Return how many frames readers that were killed may have read and not counted.

        One for each process, which counts after each read. What vhost-net has written its client
        may not have seen.
        """
        killed = [reader.kind for reader in self.victim.readers if not reader.exact]
        return MANY if "vhost" in killed else len(killed)

    def _delivered(self, taken: Taken) -> int:
        """Return how many packets of senders were read."""
        if self.victim.remade or self.plan.mode is Mode.REBIRTH:
            return taken.packets - taken.frames
        return self.victim.delivered() - taken.frames

    def delivered(self) -> int:
        """Return how many packets of senders were read."""
        return self._delivered(self._taken())

    def moves(self) -> None:
        """Wait until some packets have come; senders send and all readers are at work.

        Raises:
            Violation: none come.
        """
        before = self.delivered()
        deadline = time.monotonic() + STILL_S
        while self.delivered() < before + FEW:
            if time.monotonic() > deadline:
                raise Violation(
                    f"nothing comes although all readers read and senders send; "
                    f"{self.sums()}; {self.state()}"
                )
            time.sleep(_STEP_S)

    def settle(self) -> Sums:
        """Wait until nothing is held any more, all senders being paused and all readers at work.

        Raises:
            Violation: packets are held for ever, are missing, or came twice.
        """
        seen = self.sums()
        moved = time.monotonic()
        while not seen.balanced or self.victim.inflight():
            time.sleep(_STEP_S)
            now = self.sums()
            if (now.delivered, now.freed, now.held) != (seen.delivered, seen.freed, seen.held):
                moved = time.monotonic()
            seen = now
            if time.monotonic() - moved > STILL_S:
                raise Violation(self._why(seen))
        return seen

    def _why(self, sums: Sums) -> str:
        inflight = self.victim.inflight()
        if sums.held:
            why = "packets are held although all readers read and nobody sends"
        elif sums.missing > 0:
            why = "packets are missing: neither read nor thrown away"
        elif not sums.balanced:
            why = "more packets came than were sent"
        else:
            why = f"{inflight} bytes are charged to the byte limits and never completed"
        return f"{why}; {sums}; {inflight} bytes in flight; {self.state()}"

    def state(self) -> str:
        """Return what the driver, the qdisc and the readers say, for a report."""
        counters = {name: value for name, value in self.victim.counters().items() if value}
        readers = [(q.reader.kind, q.reader.where()) for q in self.victim.queues if q.reader]
        return (
            f"{self.victim.net.queued(self.victim.index)} in the qdisc, driver: {counters}, "
            f"readers: {readers}"
        )

    def check(self, sums: Sums) -> None:
        """Fail unless what was lost may be lost in this round, and what came is right.

        Raises:
            Violation: it is not so.
        """
        mode = self.plan.mode
        if mode is Mode.STEADY and sums.freed > sums.refused + sums.unsure:
            raise Violation(f"packets were dropped for no reason; {sums}; {self.state()}")
        if mode in (Mode.STEADY, Mode.HELD) and sums.full:
            raise Violation(f"a full ring dropped what it could hold; {sums}; {self.state()}")
        for name, value in self.victim.counters().items():
            if value and name.endswith("_drop_unclaimed"):
                raise Violation(f"{name} is {value}; {sums}")
        if self.victim.unclaimed:
            raise Violation(f"a queue that was closed had drop_unclaimed {self.victim.unclaimed}")
        self._check_counted(sums)
        self._check_readers()

    def _check_counted(self, sums: Sums) -> None:
        """What a full ring dropped is counted by the device, and by the driver with its cause.

        A queue that is closed takes its counters with it, a device all of them.
        """
        if self.victim.remade or self.plan.mode is Mode.REBIRTH:
            return
        counted = self.victim.net.stats(self.victim.index).tx_dropped
        if counted < sums.full:
            raise Violation(f"the device counts {counted} packets as dropped; {sums}")
        counters = self.victim.counters()
        if not counters or self.victim.closed:
            return
        caused = sum(
            value for name, value in counters.items() if name.partition("_")[2] in FULL_CAUSES
        )
        if caused != sums.full:
            raise Violation(f"{caused} drops have a cause; {sums}; {self.state()}")

    def _check_readers(self) -> None:
        """What they counted is what the device counted; the last packets may not be counted yet.

        The device's count may be theirs (see delivered()): it must not outgrow what was sent.
        """
        readers = self.victim.readers
        deadline = time.monotonic() + STILL_S
        while all(reader.exact for reader in readers):
            sums, read = self.sums(), self._taken().packets
            if not sums.balanced:
                raise Violation(self._why(sums))
            if read == sums.delivered + sums.frames:
                break
            if time.monotonic() > deadline:
                raise Violation(
                    f"the readers read {read} packets, the device says otherwise; {sums}"
                )
            time.sleep(_STEP_S)
        for reader in readers:
            if wrong := reader.check():
                raise Violation(f"a {reader.kind} reader saw that {wrong}")
        for sender in self.senders:
            if sender.job.get(Field.WRONG):
                where = sender.job.get(Field.WHERE)
                raise Violation(f"{sender.kind} received something else before byte {where}")


def pause(senders: list[Sender]) -> None:
    """Wait until all senders, which were told to, have paused.

    Raises:
        Violation: one hangs.
    """
    # So that who is about to send has said so.
    time.sleep(_SETTLE_S)
    deadline = time.monotonic() + PAUSE_S
    for sender in senders:
        while not sender.paused:
            if time.monotonic() > deadline:
                raise Violation(f"a sender ({sender.kind}) hangs for {PAUSE_S:.0f} s")
            time.sleep(_STEP_S)
