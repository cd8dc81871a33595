# SPDX-License-Identifier: GPL-2.0-only
"""The invariants of a row.

1. Packets are conserved: each packet sent was read, or its drop was counted.
   The tracepoint skb:kfree_skb sees every packet freed as dropped. The device, the driver and the
   qdisc count their own drops.
2. Packets sent one by one arrive within a minute, so that a missing wake shows. The stall guard,
   which would hide it, waits for ten minutes here.
3. With a qdisc the driver never finds a ring full: that is nodrop's purpose. Nor does it with a
   macvtap or ipvtap whose frames are all charged to a socket.
4. Packets that nothing can queue are dropped only in a burst beyond the ring. For a burst of one
   more than the ring, sent to a device that is not read, the drops are a fixed number, and no more
   than with the stock driver (``compare()``). For a flood they depend on the machine: no bound.
5. Finally nothing is left in the ring or the qdisc, or charged to the senders.
6. A flow to another device continues.
"""

from __future__ import annotations

from dataclasses import dataclass

from guestlib.environment import wait_until
from guestlib.netstats import dropped
from guestlib.taps import LOWER
from guestlib.tracing import reasons_freed
from proof.sweep.readers import LOSES, Readers, Tally
from proof.sweep.rows import Row
from proof.sweep.senders import Icmp, RowSender
from proof.sweep.topology import NAME, Dut, sample_qdisc

CAUSES = frozenset(
    f"drop_{cause}"
    for cause in (
        *("noqueue", "off", "foreign", "guard", "unclaimed", "bypass"),
        *("unheld", "guard", "full", "rest"),
    )
)
"""The drivers' counters of packets dropped for want of a slot."""


class Violation(Exception):
    """An invariant does not hold; the text says which."""


@dataclass
class Result:
    """The result of a row.

    Attributes:
        sent: test packets.
        lost: those of them that did not arrive.
        wrong: the violation; "": none.
        seconds: duration.
    """

    sent: int = 0
    lost: int = 0
    wrong: str = ""
    seconds: float = 0.0


class Oracle:
    """Check a row; created before the first packet is sent."""

    def __init__(
        self, dut: Dut, sender: RowSender, readers: Readers, tally: Tally, *, ours: bool
    ) -> None:
        self.row: Row = dut.row
        self.dut, self.sender, self.readers, self.tally = dut, sender, readers, tally
        self.ours = ours
        """Whether the driver is nodrop's."""
        lab = dut.lab
        self._counts = {"freed": lab.freed, "full": lab.full, "backlog": lab.backlogged}
        if self.row.sender == "xdp":
            # A dropped XDP frame has no skb: skb:kfree_skb does not see it.
            self._counts["veth"] = lambda: dropped(LOWER, "rx")
            self._counts["device"] = dut.dropped
        if isinstance(sender, Icmp):
            self._counts["unmade"] = lab.unmade[bool(dut.netns)]
        self._before = {name: count() for name, count in self._counts.items()}
        self._before["full"] = dut.full_before
        self._vague = self.row.sender == "multicast" or (
            self.row.sender == "xdp" and self.row.event == "reattach"
        )

    def causes(self) -> dict[str, int]:
        """Return the drops since the beginning, by counter."""
        return {name: count() - self._before[name] for name, count in self._counts.items()}

    def came(self) -> int:
        by_sender = self.sender.came()
        return self.readers.came if by_sender is None else by_sender

    def _qdisc_dropped(self) -> int:
        return 0 if self.row.above else sample_qdisc(NAME)[1]

    def missing(self) -> tuple[int, int]:
        """Return the least and greatest number of packets that neither arrived nor were dropped.

        A large packet may be dropped whole or in segments. Hosts free unwanted multicast packets,
        too, and nothing counts XDP frames for a device without queues: no lower bound then.
        TCP retransmits dropped packets.
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
        least, most = self.missing()
        return least <= 0 and (most >= 0 or self._vague)

    def left(self) -> dict[str, int]:
        """Return nonzero remainders: charged bytes, packets in the ring and in the qdisc."""
        dut = self.dut
        found = {"charged": self.sender.charged(), "ring": dut.counters().get("ring", 0)}
        # pfifo_fast still counts packets that it dropped when it was resized.
        resized = self.row.event == "resize" and self.row.qdisc in ("pfifo_fast", "mq")
        if not self.row.above and not resized:
            found["qdisc"] = sample_qdisc(NAME)[0]
        return {name: value for name, value in found.items() if value}

    def arrives(self, what: str) -> None:
        """Send one packet and wait for it; if nothing can queue it, for its drop.

        Raises:
            Violation: it does not arrive.
        """
        row, step = self.row, self.sender.step
        # cake drops packets that waited for long, as they do on a busy machine.
        gone = self._qdisc_dropped if row.qdisc == "cake" else int
        before = self.came() + gone()
        if not wait_until(self.sender.send):
            raise Violation(f"{what} cannot be sent: {self.state()}")
        room = row.has_qdisc or row.slots >= step

        def arrived() -> bool:
            return self.came() + gone() >= before + step

        if not wait_until(arrived if room else self.balanced):
            raise Violation(f"{what} does not arrive: {self.state()}")

    def settle(self) -> None:
        """Wait until all packets are accounted for and nothing is left.

        Raises:
            Violation: they never are.
        """
        if not wait_until(lambda: self.balanced() and not self.left()):
            raise Violation(f"packets are missing, or something is left: {self.state()}")

    def check(self) -> None:
        """Check the drops and their causes.

        Raises:
            Violation: a packet should not have been dropped.
        """
        if self.tally.wrong:
            raise Violation(f"{self.tally.wrong}: {self.state()}")
        if self.sender.errors and self.row.event not in LOSES:
            raise Violation(f"{self.sender.errors} calls failed: {self.state()}")
        causes = self.causes()
        if self.row.has_qdisc and causes["full"]:
            raise Violation(f"{causes['full']} found a ring full despite a qdisc: {self.state()}")
        if self.ours:
            self._check_ours(causes)
        if self.row.event in LOSES or self.row.sender in ("multicast", "xdp"):
            return
        others = causes["freed"] - causes["full"] - causes["backlog"]
        by_qdisc = self._qdisc_dropped()
        if others > by_qdisc:
            raise Violation(f"{others - by_qdisc} drops that nothing counted: {self.state()}")

    def _check_ours(self, causes: dict[str, int]) -> None:
        if self.row.charged and causes["full"]:
            raise Violation(f"{causes['full']} charged frames were dropped: {self.state()}")
        # The kernel's own multicast packets may be dropped between one count and the other.
        if not wait_until(lambda: self._counted() == self.causes()["full"]):
            counted = self._counted()
            raise Violation(f"the driver counts {counted} drops at a full ring: {self.state()}")
        if self.dut.dropped() < causes["full"]:
            raise Violation(f"the device counts {self.dut.dropped()} drops: {self.state()}")

    def _counted(self) -> int:
        return sum(value for name, value in self.dut.counters().items() if name in CAUSES)

    def state(self) -> str:
        counters = {name: value for name, value in self.dut.counters().items() if value}
        causes = self.causes()
        return (
            f"sent {self.sender.sent} ({self.sender.refused} refused, {self.sender.errors} errors, "
            f"{self.sender.unsure} unsure), arrived {self.came()}, drops {causes} "
            f"{reasons_freed(causes['freed'])}, left {self.left()}, driver {counters}"
        )


def compare(ours: Result, stock: Result) -> str:
    """Return how a row is worse than with the stock driver; "": it is not."""
    if ours.lost > stock.lost:
        return f"{ours.lost} of {ours.sent} were dropped, with stock {stock.lost}"
    return ""


def comparable(row: Row) -> bool:
    """Return whether a row's drops are an exact number, to compare with stock's."""
    # Forwarded frames may still be on their way when the reader starts; the kernel sends multicast
    # packets of its own.
    exact = row.sender not in ("tcp", "forwarded", "multicast")
    return not row.has_qdisc and row.pace == "burst" and row.event == "none" and exact
