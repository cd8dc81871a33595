# SPDX-License-Identifier: GPL-2.0-only
"""What all kinds of scenario share: parameters, and an account of all packets."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bench.guest.plan import Parameters
from guestlib.environment import Environment
from guestlib.failure import GuestError
from guestlib.netstats import LinkCounters, QdiscCounters, link_counters, qdisc_counters
from guestlib.timing import time_limit
from lab.variant import Variant

Metrics = dict[str, int | float]
"""Results of one run; the unit is in the name."""

DRAIN_TIMEOUT_S = time_limit(10.0)
DRAIN_STEP_S = 0.005


class Scenario(ABC):
    """One kind of scenario with its parameters.

    Args:
        parameters: from the scenario's file; checked here.
        environment: directories of programs and results.

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
        """Return the host's programs that a run needs and that can change its result.

        bench.programs lists their packages.
        """
        del parameters
        return ("ip", "tc")

    @abstractmethod
    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Make one run with the loaded driver.

        Args:
            seconds: length of the measured window.

        Raises:
            GuestError: the run failed.
        """

    def number(self, name: str) -> int:
        """Return an integer parameter."""
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        """Return a boolean parameter."""
        return bool(self.values[name])

    def text(self, name: str) -> str:
        """Return a text parameter."""
        return str(self.values[name])


@dataclass(frozen=True)
class Account:
    """An account of the packets of one run.

    Attributes:
        offered: passed to the device's qdisc by the senders.
        delivered: read from the device.
        queued: left in the qdisc at the end.
        lost: dropped by the driver although a qdisc could have queued them.
        qdisc_drops: dropped by the qdisc, at its limit or by its AQM.
        unqueued: dropped by the driver with noqueue.
    """

    offered: int
    delivered: int
    queued: int
    lost: int
    qdisc_drops: int
    unqueued: int = 0

    @property
    def unaccounted(self) -> int:
        """Packets that no counter has; negative if some were counted twice."""
        found = self.delivered + self.queued + self.lost + self.qdisc_drops + self.unqueued
        return self.offered - found


@dataclass(frozen=True)
class DeviceCounts:
    """The counters of a device and of its qdisc at one moment."""

    link: LinkCounters
    qdisc: QdiscCounters

    @classmethod
    def of(cls, name: str, netns: str | None = None) -> DeviceCounts:
        """Read the counters."""
        return cls(link_counters(name, netns=netns), qdisc_counters(name, netns=netns))

    @property
    def gone(self) -> int:
        """Packets that have left the device: read or dropped."""
        return self.link.tx_packets + self.link.tx_dropped

    def is_drained(self, offered: int | None, before: int = 0) -> bool:
        """Return whether qdisc and ring are empty.

        Args:
            offered: packets that the senders passed on; None if only the qdisc has counted them.
            before: packets that had left the device before the qdisc was attached.
        """
        gone = self.gone - before
        if offered is None:
            return not self.qdisc.queued and self.qdisc.packets == gone
        return gone + self.qdisc.drops == offered


def drain(
    name: str,
    offered: int | None = None,
    *,
    netns: str | None = None,
    before: int = 0,
    segments: bool = False,
) -> DeviceCounts:
    """Wait until the reader has emptied qdisc and ring, at most DRAIN_TIMEOUT_S; read the counters.

    The device must be new, so its counters are those of the run, or ``before`` must be given.

    Args:
        name: of the device.
        offered: packets that the senders passed on; None if only the qdisc has counted them.
        netns: the device's namespace; None: this one.
        before: packets that had left the device before the qdisc was attached.
        segments: the qdisc counts the segments of each packet: wait until no packet moves instead.
    """
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    last = -1
    while True:
        counts = DeviceCounts.of(name, netns)
        still = not counts.qdisc.queued and counts.gone == last
        drained = still if segments else counts.is_drained(offered, before)
        if drained or time.monotonic() > deadline:
            return counts
        last = counts.gone
        time.sleep(DRAIN_STEP_S)


def account(
    offered: int, delivered: int, after: DeviceCounts, before: DeviceCounts | None = None
) -> Account:
    """Return the account of a device that only this run has used since ``before``."""
    return Account(
        offered=offered,
        delivered=delivered,
        queued=after.qdisc.queued,
        lost=after.link.tx_dropped - (before.link.tx_dropped if before else 0),
        qdisc_drops=after.qdisc.drops,
    )


def driver_metrics(counters: Mapping[str, int]) -> Metrics:
    """Return a driver's own counters as metrics."""
    return {f"driver_{name}": value for name, value in counters.items()}


def account_metrics(account: Account) -> Metrics:
    """Return an account as metrics, in packets."""
    return {
        "offered": account.offered,
        "delivered": account.delivered,
        "queued": account.queued,
        "lost": account.lost,
        "qdisc_drops": account.qdisc_drops,
        "unqueued": account.unqueued,
        "unaccounted": account.unaccounted,
    }
