# SPDX-License-Identifier: GPL-2.0-only
"""Floods a TAP with pktgen, through its qdisc or bypassing it, for any kind of reader."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import ClassVar

from bench.guest.scenarios import base
from guestlib.kreader import Counts
from guestlib.netstats import driver_counters
from guestlib.pktgen import Pktgen, PktgenResult
from guestlib.tundev import configure
from guestlib.vhost_client import VhostCounts
from lab.variant import OURS, Variant

DEVICE = "ndtap0"
SETTLE_S = 0.03
"""From the senders' start to the measured window, seconds: queues fill, caches warm up."""
NO_QUEUE = "noqueue"
"""A qdisc without a queue: the driver must drop what does not fit into the ring."""


ReaderCounts = Counts | VhostCounts
Counting = Callable[[], ReaderCounts]


def flood_metrics(
    reader: str,
    sent: Sequence[PktgenResult],
    window: tuple[ReaderCounts, ReaderCounts],
    delivered: int,
    counts: base.DeviceCounts,
) -> base.Metrics:
    """Return the account of all packets, and the rates in the measured window.

    Args:
        reader: prefix of the reader's metrics.
        sent: the result of each sender.
        window: the reader's counts at the window's start and end.
        delivered: packets read in total.
        counts: of the drained device.
    """
    first, last = window
    has_queue = counts.qdisc.kind != NO_QUEUE
    account = base.Account(
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
    metrics: base.Metrics = {
        "delivered_pps": (last.packets - first.packets) / window_s,
        "lost_pps": account.lost / active_s,
        "unqueued_pps": account.unqueued / active_s,
        "refused": sum(sender.refused for sender in sent),
        "requeues": counts.qdisc.requeues,
        f"{reader}_sleeps_per_s": sleeps / window_s,
        f"{reader}_involuntary_switches_per_s": switches / window_s,
        "window_s": window_s,
    }
    return metrics | base.account_metrics(account)


class Flood(base.Scenario):
    """Senders that flood the device, and a reader that a subclass starts."""

    parameters = frozenset({"senders", "txqueuelen", "qdisc", "packet_bytes", "direct"})
    reader: ClassVar[str]
    """Prefix of the reader's metrics."""

    @abstractmethod
    def read(self, variant: Variant, stack: ExitStack) -> tuple[Counting, Counting]:
        """Open and configure DEVICE, and start its reader.

        Returns:
            Two functions: one returns the reader's counts, the other stops it and returns the final
            counts.
        """

    def set_up(self) -> None:
        """Set the device's ring size and qdisc, and bring it up."""
        configure(DEVICE, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))

    def run(self, variant: Variant, seconds: float) -> base.Metrics:
        """Send for the window, drain the queue, account for every packet."""
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
                rest = base.drain(DEVICE, sum(sender.offered for sender in sent))
                driver = driver_counters(DEVICE) if variant in OURS else {}
            delivered = end().packets - idle.packets
        metrics = flood_metrics(self.reader, sent, (first, last), delivered, rest)
        return metrics | base.driver_metrics(driver)
