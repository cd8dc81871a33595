# SPDX-License-Identifier: GPL-2.0-only
"""What every kind of scenario is."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bench.guest.plan import Parameters
from lab.guest.environment import Environment
from lab.guest.failure import GuestError
from lab.guest.netstats import LinkCounters, QdiscCounters, link_counters, qdisc_counters
from lab.guest.timing import time_limit
from lab.guest.variant import Variant

Metrics = dict[str, int | float]
"""Results of one run; the unit is in the name."""

DRAIN_TIMEOUT_S = time_limit(10.0)
DRAIN_STEP_S = 0.005


class Scenario(ABC):
    """One kind of scenario with its parameters.

    Args:
        parameters: from the scenario's file; checked here.
        environment: where programs and results are.

    Raises:
        GuestError: a parameter is missing or unknown.
    """

    parameters: ClassVar[frozenset[str]] = frozenset()
    """The names of the parameters, all of them required."""

    uses_vhost: ClassVar[bool] = False
    """Whether vhost-net must be loaded."""

    def __init__(self, parameters: Parameters, environment: Environment) -> None:
        given = frozenset(parameters)
        if given != self.parameters:
            wrong = ", ".join(sorted(given ^ self.parameters))
            raise GuestError(f"missing or unknown parameters of a scenario: {wrong}")
        self.values = parameters
        self.environment = environment

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return the machine's own programs that a run needs and that can change its result.

        bench.programs knows their packages.
        """
        del parameters
        return ("ip", "tc")

    @abstractmethod
    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Make one run with a driver that is already loaded.

        Args:
            seconds: length of the measured window.

        Raises:
            GuestError: the run could not be made.
        """

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return bool(self.values[name])

    def text(self, name: str) -> str:
        """Return a parameter that is a text."""
        return str(self.values[name])


@dataclass(frozen=True)
class Account:
    """Where the packets of one run went.

    Attributes:
        offered: given to the device's qdisc by the senders.
        delivered: read from the device.
        queued: left in the qdisc and in the ring at the end.
        lost: dropped by the driver although a qdisc could have held them.
        qdisc_drops: dropped by the qdisc itself, at its limit or by its AQM.
        unqueued: dropped by the driver where no qdisc could have held them (noqueue).
    """

    offered: int
    delivered: int
    queued: int
    lost: int
    qdisc_drops: int
    unqueued: int = 0

    @property
    def unaccounted(self) -> int:
        """Packets that nobody counted; negative when some were counted twice."""
        found = self.delivered + self.queued + self.lost + self.qdisc_drops + self.unqueued
        return self.offered - found


@dataclass(frozen=True)
class DeviceCounts:
    """The counters of a device and of its qdisc at one moment."""

    link: LinkCounters
    qdisc: QdiscCounters

    @classmethod
    def of(cls, name: str, netns: str | None = None) -> DeviceCounts:
        """Read them."""
        return cls(link_counters(name, netns=netns), qdisc_counters(name, netns=netns))

    @property
    def gone(self) -> int:
        """Packets that the device had and has no more: read, or dropped."""
        return self.link.tx_packets + self.link.tx_dropped

    def is_drained(self, offered: int | None, before: int = 0) -> bool:
        """Whether nothing waits any more, neither in the qdisc nor in the ring.

        Args:
            offered: packets that the senders gave; None when only the qdisc knows.
            before: packets that were gone before the qdisc was there.
        """
        gone = self.gone - before
        if offered is None:
            return not self.qdisc.queued and self.qdisc.packets == gone
        return gone + self.qdisc.drops == offered


def drain(
    name: str, offered: int | None = None, *, netns: str | None = None, before: int = 0
) -> DeviceCounts:
    """Wait until a device's reader has taken what the qdisc and the ring held.

    Returns the device's counters then, or after DRAIN_TIMEOUT_S: what is left is found in
    them. The device must be new, so that its counters are those of the run, or ``before`` be told.

    Args:
        name: of the device.
        offered: packets that the senders gave; None when only the qdisc knows.
        netns: where the device is; None: here.
        before: packets that were gone before the qdisc was there.
    """
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while True:
        counts = DeviceCounts.of(name, netns)
        if counts.is_drained(offered, before) or time.monotonic() > deadline:
            return counts
        time.sleep(DRAIN_STEP_S)


def account(
    offered: int, delivered: int, after: DeviceCounts, before: DeviceCounts | None = None
) -> Account:
    """Return the account of a device that had no others' packets since ``before``."""
    return Account(
        offered=offered,
        delivered=delivered,
        queued=after.qdisc.queued,
        lost=after.link.tx_dropped - (before.link.tx_dropped if before else 0),
        qdisc_drops=after.qdisc.drops,
    )


def driver_metrics(counters: Mapping[str, int]) -> Metrics:
    """Return a driver's own counters in the form of metrics."""
    return {f"driver_{name}": value for name, value in counters.items()}


def account_metrics(account: Account) -> Metrics:
    """Return an account in the form of metrics; all are packets."""
    return {
        "offered": account.offered,
        "delivered": account.delivered,
        "queued": account.queued,
        "lost": account.lost,
        "qdisc_drops": account.qdisc_drops,
        "unqueued": account.unqueued,
        "unaccounted": account.unaccounted,
    }
