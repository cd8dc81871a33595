# SPDX-License-Identifier: GPL-2.0-only
"""Account for every packet: sent, received, dropped (and by whom), or still queued."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from harness import DEEP, NAME, Reader, Sender, check, dropped, equal, soon

from guestlib.netstats import driver_counters, qdisc_counters
from guestlib.process import tool
from guestlib.timing import time_limit

IPV4_UDP = b"\x45"
PORT, SEQUENCE = slice(22, 24), slice(28, 32)
"""Offsets of a Sender's destination port and packet number, from the IPv4 header on."""


STILL_S = time_limit(2.0)
"""If no packet arrives for so long, none will. Seconds."""


class Account:
    """The packet numbers received from each sender, by its port.

    Args:
        skip: bytes before the IPv4 header, 14 for a TAP.
    """

    def __init__(self, *, skip: int = 0) -> None:
        self.came: dict[int, list[int]] = {}
        self.others = 0
        self._skip = skip

    def add(self, packet: bytes) -> None:
        """Record one packet; only count it if no Sender sent it."""
        packet = packet[self._skip :]
        if packet[:1] != IPV4_UDP or packet[9] != 17:
            self.others += 1
            return
        port = int.from_bytes(packet[PORT], "big")
        self.came.setdefault(port, []).append(int.from_bytes(packet[SEQUENCE], "big"))

    def of(self, sender: Sender) -> list[int]:
        """Return a copy of the numbers received from a sender; readers may add more meanwhile."""
        return list(self.came.get(sender.port, []))

    def count(self) -> int:
        """Return the number of packets received from all senders."""
        return sum(map(len, self.came.values()))

    def missing(self, senders: Iterable[Sender]) -> int:
        """Return how many packets of the senders are missing; fail if one arrived twice."""
        missing = 0
        for sender in senders:
            numbers = self.of(sender)
            equal(len(set(numbers)), len(numbers), f"port {sender.port}: packets without copies")
            missing += sender.sent - len(numbers)
        return missing

    def in_order(self, senders: Iterable[Sender]) -> None:
        """Fail unless each sender's packets arrived in order."""
        for sender in senders:
            numbers = self.of(sender)
            late = sum(b < a for a, b in itertools.pairwise(numbers))
            equal(late, 0, f"port {sender.port}: packets out of order")


class PacketSink(Protocol):
    """Anything that records packets."""

    def add(self, packet: bytes) -> object:
        """Record one."""


class Recorder(Reader):
    """A reader that records what it reads.

    Args:
        fd: as for Reader.
        account: several readers may share one.
        pause_s: as for Reader.
    """

    def __init__(self, fd: int, account: PacketSink, *, pause_s: float = 0.0) -> None:
        super().__init__(fd, pause_s=pause_s)
        self._account = account

    def on_packet(self, packet: bytes) -> None:
        """Record the packet."""
        self._account.add(packet)


def mq(queues: int) -> None:
    """Give the device the qdisc mq, with a pfifo for each queue."""
    tool(["tc", "qdisc", "replace", "dev", NAME, "root", "handle", "1:", "mq"])
    for number in range(1, queues + 1):
        parent = f"1:{number:x}"
        tool(["tc", "qdisc", "replace", "dev", NAME, "parent", parent, *DEEP.split()])


def in_rings() -> int:
    """Return the packets in all rings of the device."""
    return sum(value for name, value in driver_counters(NAME).items() if name.endswith("_ring"))


def drops() -> dict[str, int]:
    """Return the driver's nonzero drop counters, summed over the queues."""
    found: dict[str, int] = {}
    for name, value in driver_counters(NAME).items():
        cause = name.partition("_")[2]
        if value and cause.startswith("drop_"):
            found[cause] = found.get(cause, 0) + value
    return found


def all_finish(senders: Iterable[Sender], timeout: float = 15) -> None:
    """Fail unless each sender finishes within ``timeout`` seconds."""
    for sender in senders:
        check(sender.finished(timeout), f"the sender to port {sender.port} hangs")


def all_drops(since: dict[str, int] | None = None) -> dict[str, int]:
    """Return the device's counted drops by cause, without zeros.

    The driver's causes have their names. "stack" is the rest of the device's drops: noop_qdisc
    while the core replaces the qdisc, or a filter. "qdisc" is the qdisc's own drops.

    Args:
        since: an earlier result, which is subtracted.
    """
    found = drops()
    found["stack"] = dropped() - sum(found.values())
    found["qdisc"] = qdisc_counters(NAME).drops
    for cause, count in (since or {}).items():
        found[cause] = found.get(cause, 0) - count
    return {cause: count for cause, count in found.items() if count}


def settled(
    senders: Sequence[Sender],
    account: Account,
    *,
    allowed: str = "",
    order: bool = True,
    since: dict[str, int] | None = None,
) -> int:
    """Fail unless every packet is accounted for and none is queued any more.

    The senders have ended; the readers still read.

    Args:
        allowed: the causes of drops, as all_drops() names them, that are no failure.
        order: whether each sender's packets must be in order.
        since: all_drops() before the senders began.

    Returns:
        The packets dropped by allowed causes.
    """

    def rest() -> int:
        return account.missing(senders) - sum(all_drops(since).values())

    came, moved = -1, time.monotonic()
    while rest() > 0 or qdisc_counters(NAME).queued:
        if account.count() != came:
            came, moved = account.count(), time.monotonic()
        check(
            time.monotonic() - moved < STILL_S,
            f"{rest()} packets neither arrived nor were counted as drops, "
            f"{qdisc_counters(NAME).queued} are in the qdisc, {in_rings()} in rings; "
            f"drops: {all_drops(since)}",
        )
        time.sleep(0.02)
    lost = all_drops(since)
    equal(set(lost) - set(allowed.split()), set(), f"causes of drops {lost}")
    equal(rest(), 0, "packets counted as drops that arrived")
    if order:
        account.in_order(senders)
    soon(lambda: in_rings() == 0, lambda: f"{in_rings()} packets stay in rings", 2)
    return sum(lost.values())


def check_delivery(account: Account, *, first_port: int = 2000, flows: int = 4) -> None:
    """Fail unless new packets of several senders all arrive: no txq is left stopped."""
    before = all_drops()
    senders = [Sender(100, port=first_port + number) for number in range(flows)]
    all_finish(senders)
    settled(senders, account, since=before)
