# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from nodrop.guest.account import Account
from nodrop.guest.scenarios.base import account_metrics


def test_every_packet_is_somewhere() -> None:
    account = Account(offered=2043, delivered=3, queued=90, lost=0, qdisc_drops=1950)
    assert account.unaccounted == 0


def test_a_packet_that_vanished_is_seen() -> None:
    account = Account(offered=10, delivered=4, queued=1, lost=2, qdisc_drops=1)
    assert account.unaccounted == 2
    assert account_metrics(account)["unaccounted"] == 2


def test_a_packet_counted_twice_is_seen() -> None:
    assert Account(offered=1, delivered=1, queued=0, lost=1, qdisc_drops=0).unaccounted == -1
