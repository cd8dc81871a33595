# SPDX-License-Identifier: GPL-2.0-only
"""What a flood of pktgen's comes to, whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nodrop.guest.account import Account
from nodrop.guest.pktgen import PktgenResult
from nodrop.guest.scenarios.base import DeviceCounts, Metrics, account_metrics

NO_QUEUE = "noqueue"
"""The qdisc that holds nothing: what the driver cannot take must be dropped."""


class ReaderCounts(Protocol):
    """What a reader counts from its start; times in ns."""

    @property
    def packets(self) -> int:
        """Packets read."""

    @property
    def now_ns(self) -> int:
        """The time, ns."""

    @property
    def voluntary_switches(self) -> int:
        """Times it slept."""

    @property
    def involuntary_switches(self) -> int:
        """Times it was preempted."""


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
        "offered_pps": account.offered / active_s,
        "lost_pps": account.lost / active_s,
        "unqueued_pps": account.unqueued / active_s,
        "refused": sum(sender.refused for sender in sent),
        "requeues": counts.qdisc.requeues,
        f"{reader}_sleeps_per_s": sleeps / window_s,
        f"{reader}_involuntary_switches_per_s": switches / window_s,
        "window_s": window_s,
    }
    return metrics | account_metrics(account)
