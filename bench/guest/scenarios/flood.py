# SPDX-License-Identifier: GPL-2.0-only
"""pktgen into a TAP, through its qdisc or past it, whoever reads it; and what that comes to."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import ClassVar

from bench.guest.scenarios.base import (
    Account,
    DeviceCounts,
    Metrics,
    Scenario,
    account_metrics,
    drain,
    driver_metrics,
)
from lab.guest.kreader import Counts
from lab.guest.netstats import driver_counters
from lab.guest.pktgen import Pktgen, PktgenResult
from lab.guest.tundev import configure
from lab.guest.variant import Variant
from lab.guest.vhost_client import VhostCounts

DEVICE = "ndtap0"
SETTLE_S = 0.03
"""From the last sender's start to the measured window: queues fill, caches warm."""
NO_QUEUE = "noqueue"
"""The qdisc that holds nothing: what the driver cannot take must be dropped."""


ReaderCounts = Counts | VhostCounts
Counting = Callable[[], ReaderCounts]


def flood_metrics(
    reader: str,
    sent: Sequence[PktgenResult],
    window: tuple[ReaderCounts, ReaderCounts],
    delivered: int,
    counts: DeviceCounts,
) -> Metrics:
    """Return the account of all packets, and the rates within the measured window.

    Args:
        reader: what the reader's metrics are called by.
        sent: the result of each sender.
        window: the reader's counts at the window's beginning and end.
        delivered: packets read in all.
        counts: of the device, when it has come to rest.
    """
    first, last = window
    has_queue = counts.qdisc.kind != NO_QUEUE
    account = Account(
        offered=sum(sender.offered for sender in sent),
        delivered=delivered,
        queued=counts.qdisc.queued,
        lost=counts.link.tx_dropped if has_queue else 0,
        qdisc_drops=counts.qdisc.drops,
        unqueued=0 if has_queue else counts.link.tx_dropped,
    )
    window_s = (last.now_ns - first.now_ns) / 1e9
    active_s = max(sender.active_s for sender in sent)
    switches = last.involuntary_switches - first.involuntary_switches
    sleeps = last.voluntary_switches - first.voluntary_switches
    metrics: Metrics = {
        "delivered_pps": (last.packets - first.packets) / window_s,
        "lost_pps": account.lost / active_s,
        "unqueued_pps": account.unqueued / active_s,
        "refused": sum(sender.refused for sender in sent),
        "requeues": counts.qdisc.requeues,
        f"{reader}_sleeps_per_s": sleeps / window_s,
        f"{reader}_involuntary_switches_per_s": switches / window_s,
        "window_s": window_s,
    }
    return metrics | account_metrics(account)


class Flood(Scenario):
    """Senders that never wait, and their reader, which a subclass starts."""

    parameters = frozenset({"senders", "txqueuelen", "qdisc", "packet_bytes", "direct"})
    reader: ClassVar[str]
    """What its metrics are called by."""

    @abstractmethod
    def read(self, variant: Variant, stack: ExitStack) -> tuple[Counting, Counting]:
        """Open DEVICE, set it up and have it read.

        Returns:
            What gives the reader's counts, and what gives its last ones.
        """

    def set_up(self) -> None:
        """Give the device its ring and its qdisc, and bring it up."""
        configure(DEVICE, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Send for the window, let the queue drain, account for every packet."""
        pktgen = Pktgen(
            DEVICE,
            senders=self.number("senders"),
            packet_bytes=self.number("packet_bytes"),
            direct=self.flag("direct"),
        )
        with ExitStack() as stack:
            counts, end = self.read(variant, stack)
            stack.enter_context(pktgen)
            idle = counts()
            with pktgen.sending():
                time.sleep(SETTLE_S)
                first = counts()
                time.sleep(seconds)
                last = counts()
            sent = pktgen.results()
            with pktgen.removing():
                rest = drain(DEVICE, sum(sender.offered for sender in sent))
                driver = driver_counters(DEVICE) if variant is Variant.NODROP else {}
            delivered = end().packets - idle.packets
        metrics = flood_metrics(self.reader, sent, (first, last), delivered, rest)
        return metrics | driver_metrics(driver)
