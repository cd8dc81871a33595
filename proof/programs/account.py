# SPDX-License-Identifier: GPL-2.0-only
"""Accounts for every packet: what each sender sent, what of it came, what is still held."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from harness import HOLD, NAME, Reader, Sender, check, dropped, equal, soon

from lab.guest.netstats import driver_counters, qdisc_counters
from lab.guest.process import tool
from lab.guest.timing import time_limit

IPV4_UDP = b"\x45"
PORT, SEQUENCE = slice(22, 24), slice(28, 32)
"""Where a Sender's datagram has its port and its number, from the IPv4 header on."""


STILL_S = time_limit(2.0)
"""When nothing comes for so long nothing will."""


class Account:
    """The numbers that came from each sender, by its port.

    Args:
        skip: bytes in front of the IPv4 header, 14 for a TAP.
    """

    def __init__(self, *, skip: int = 0) -> None:
        self.came: dict[int, list[int]] = {}
        self.others = 0
        self._skip = skip

    def add(self, packet: bytes) -> None:
        """Account for one packet; what no Sender sent is only counted."""
        packet = packet[self._skip :]
        if packet[:1] != IPV4_UDP or packet[9] != 17:
            self.others += 1
            return
        port = int.from_bytes(packet[PORT], "big")
        self.came.setdefault(port, []).append(int.from_bytes(packet[SEQUENCE], "big"))

    def of(self, sender: Sender) -> list[int]:
        """The sender's numbers that came so far; the readers may go on adding to their own."""
        return list(self.came.get(sender.port, []))

    def count(self) -> int:
        """How many packets of all senders came."""
        return sum(map(len, self.came.values()))

    def lost(self, senders: Iterable[Sender]) -> int:
        """How many packets of the senders have not come; fails when one came twice."""
        missing = 0
        for sender in senders:
            numbers = self.of(sender)
            equal(len(set(numbers)), len(numbers), f"port {sender.port}: packets without copies")
            missing += sender.sent - len(numbers)
        return missing

    def in_order(self, senders: Iterable[Sender]) -> None:
        """Fail unless each sender's packets came in the order in which they were sent."""
        for sender in senders:
            numbers = self.of(sender)
            late = sum(b < a for a, b in itertools.pairwise(numbers))
            equal(late, 0, f"port {sender.port}: packets out of order")


class Adds(Protocol):
    """What accounts for packets."""

    def add(self, packet: bytes) -> object:
        """Account for one."""


class Teller(Reader):
    """A reader that accounts for what it reads.

    Args:
        fd: as for Reader.
        account: where to; several readers may share one.
        pause_s: as for Reader.
    """

    def __init__(self, fd: int, account: Adds, *, pause_s: float = 0.0) -> None:
        super().__init__(fd, pause_s=pause_s)
        self._account = account

    def took(self, packet: bytes) -> None:
        """Account for what was read."""
        self._account.add(packet)


def mq(queues: int) -> None:
    """Give the device the qdisc mq, with a child of its own for each queue."""
    tool(["tc", "qdisc", "replace", "dev", NAME, "root", "handle", "1:", "mq"])
    for number in range(1, queues + 1):
        parent = f"1:{number:x}"
        tool(["tc", "qdisc", "replace", "dev", NAME, "parent", parent, *HOLD.split()])


def held() -> int:
    """Packets in all rings of the device."""
    return sum(value for name, value in driver_counters(NAME).items() if name.endswith("_ring"))


def drops() -> dict[str, int]:
    """The driver's counters of drops that are not 0, of all queues."""
    found: dict[str, int] = {}
    for name, value in driver_counters(NAME).items():
        cause = name.partition("_")[2]
        if value and cause.startswith("drop_"):
            found[cause] = found.get(cause, 0) + value
    return found


def all_finish(senders: Iterable[Sender], timeout: float = 15) -> None:
    """Fail unless all senders send all they have, each within a time, seconds."""
    for sender in senders:
        check(sender.finished(timeout), f"the sender to port {sender.port} hangs")


def losses(since: dict[str, int] | None = None) -> dict[str, int]:
    """Packets of the device that are known to be lost, by who dropped them, without zeros.

    The driver's causes by their names. "stack": what the device counts beside them, which
    is what came while the network core had taken the qdisc away (noop_qdisc), or what a
    filter did not let through. "qdisc": what the qdisc dropped.

    Args:
        since: an earlier answer, which is subtracted.
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
    """Fail unless every packet is accounted for and nothing is held any more.

    The readers still read, the senders have ended.

    Args:
        allowed: the causes, as losses() names them, by which packets may be lost.
        order: whether each sender's packets must have come in order.
        since: what was lost before the senders began.

    Returns:
        How many packets were lost by the causes that are allowed.
    """

    def rest() -> int:
        return account.lost(senders) - sum(losses(since).values())

    came, moved = -1, time.monotonic()
    while rest() > 0 or qdisc_counters(NAME).queued:
        if account.count() != came:
            came, moved = account.count(), time.monotonic()
        check(
            time.monotonic() - moved < STILL_S,
            f"{rest()} packets neither come nor were counted as lost, "
            f"{qdisc_counters(NAME).queued} are in the qdisc, {held()} in rings; "
            f"lost: {losses(since)}",
        )
        time.sleep(0.02)
    lost = losses(since)
    equal(set(lost) - set(allowed.split()), set(), f"causes of losses {lost}")
    equal(rest(), 0, "packets counted as lost that came")
    if order:
        account.in_order(senders)
    soon(lambda: held() == 0, lambda: f"{held()} packets stay in rings", 2)
    return sum(lost.values())


def goes_on(account: Account, *, first_port: int = 2000, flows: int = 4) -> None:
    """Fail unless new packets of several senders all come: nothing is stopped."""
    before = losses()
    senders = [Sender(100, port=first_port + number) for number in range(flows)]
    all_finish(senders)
    settled(senders, account, since=before)
