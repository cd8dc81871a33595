# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import pytest

from nodrop.guest.account import Account
from nodrop.guest.counters import LinkCounters, QdiscCounters
from nodrop.guest.kreader import Counts
from nodrop.guest.pktgen import PktgenResult
from nodrop.guest.scenarios.base import DeviceCounts, account_metrics
from nodrop.guest.scenarios.flood import flood_metrics


def test_every_packet_is_somewhere() -> None:
    account = Account(offered=2043, delivered=3, queued=90, lost=0, qdisc_drops=1950)
    assert account.unaccounted == 0


def test_a_packet_that_vanished_is_seen() -> None:
    account = Account(offered=10, delivered=4, queued=1, lost=2, qdisc_drops=1)
    assert account.unaccounted == 2
    assert account_metrics(account)["unaccounted"] == 2


def test_a_packet_counted_twice_is_seen() -> None:
    assert Account(offered=1, delivered=1, queued=0, lost=1, qdisc_drops=0).unaccounted == -1


def test_a_drop_without_a_qdisc_is_no_loss() -> None:
    found = {}
    for kind in ("noqueue", "fq_codel"):
        device = DeviceCounts(
            LinkCounters(tx_packets=7, tx_bytes=0, tx_dropped=3),
            QdiscCounters(kind, packets=0, drops=0, requeues=0, queued=0),
        )
        counted = Counts(0, 0, 0, 0, 0, 0, 0, 1, 0), Counts(7, 420, 10**9, 0, 0, 0, 0, 1, 0)
        sent = [PktgenResult(accepted=7, refused=3, active_s=1.0)]
        found[kind] = flood_metrics("reader", sent, counted, 7, device)
    assert [found[kind]["lost"] for kind in found] == [0, 3]
    assert [found[kind]["unqueued"] for kind in found] == [3, 0]
    assert [found[kind]["unaccounted"] for kind in found] == [0, 0]


def counts(read: int, lost: int, given: int, drops: int, queued: int) -> DeviceCounts:
    return DeviceCounts(
        LinkCounters(tx_packets=read, tx_bytes=0, tx_dropped=lost),
        QdiscCounters("fq_codel", packets=given, drops=drops, requeues=0, queued=queued),
    )


@pytest.mark.parametrize(
    ("device", "offered", "drained"),
    [
        (counts(read=7, lost=1, given=8, drops=2, queued=0), 10, True),
        (counts(read=6, lost=1, given=8, drops=2, queued=0), 10, False),
        (counts(read=6, lost=1, given=7, drops=2, queued=1), 10, False),
        # Past the qdisc: it has counted nothing.
        (counts(read=9, lost=1, given=0, drops=0, queued=0), 10, True),
        (counts(read=7, lost=1, given=8, drops=2, queued=0), None, True),
        (counts(read=7, lost=0, given=8, drops=2, queued=0), None, False),
        (counts(read=7, lost=1, given=8, drops=2, queued=1), None, False),
    ],
)
def test_drained(device: DeviceCounts, offered: int | None, drained: bool) -> None:
    assert device.is_drained(offered) is drained
