# SPDX-License-Identifier: GPL-2.0-only
"""The account of the torture's packets."""

from __future__ import annotations

from typing import cast

import pytest

from nodrop.guest.torture import balance
from nodrop.guest.torture.balance import Balance, Sums, Violation
from nodrop.guest.torture.plan import Mode, Round, rounds
from nodrop.guest.torture.senders import payload
from nodrop.guest.torture.victim import Victim


def sums(**changes: int) -> Sums:
    values = {"sent": 100, "delivered": 90, "freed": 10, "full": 0, "refused": 0, "held": 0}
    return Sums(**{**values, "unsure": 0, "frames": 0, **changes})


def test_the_balance() -> None:
    assert sums().balanced
    assert not sums(delivered=89).balanced, "one is missing"
    assert not sums(delivered=89, held=1).balanced, "one is held"
    assert not sums(delivered=91).balanced, "one came twice"
    assert sums(delivered=91, unsure=1).balanced
    assert sums(delivered=93, frames=3).balanced
    assert not sums(delivered=89, unsure=1, frames=3).balanced, "one is missing"


def test_packets_end_in_one_piece() -> None:
    assert 20 + 8 + len(payload(255, 1 << 40)) <= 68, "the smallest MTU of IPv4"


class LateReader:
    """Counts what it has read a while after it took it, as one that got no CPU does."""

    kind = "blocking"
    exact = True

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts

    def read(self) -> int:
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]

    def check(self) -> str:
        return ""


class Device:
    """Stands for a Victim whose rings are empty."""

    index = 1
    remade = 0

    def __init__(self, delivered: int, reader: LateReader) -> None:
        self.readers = [reader]
        self.queues: list[object] = []
        self.net = self
        self._delivered = delivered

    def delivered(self) -> int:
        return self._delivered

    def queued(self, _index: int) -> int:
        return 0

    def ring(self) -> int:
        return 0

    def inflight(self) -> int:
        return 0

    def counters(self) -> dict[str, int]:
        return {}


def account(mode: Mode, *, counts: list[int], delivered: int = 0, unsure: int = 0) -> Balance:
    """The account of 90 packets."""
    plan: Round = next(plan for plan in rounds(1) if plan.mode is mode)
    victim = cast("Victim", Device(delivered, LateReader(counts)))
    made = Balance(plan, victim, [], lambda: 0, lambda: 0)
    made.generated, made.unsure = 90, unsure
    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "STILL_S", 0.05)


def test_readers_that_count_late_agree_with_their_device() -> None:
    held = account(Mode.HELD, counts=[80, 80, 90], delivered=90)
    held.check(held.settle())


def test_readers_that_disagree_with_their_device_are_told() -> None:
    held = account(Mode.HELD, counts=[89], delivered=90)
    with pytest.raises(Violation, match="readers read 89 packets"):
        held.check(held.settle())


def test_readers_that_count_for_a_device_that_went_may_be_late() -> None:
    gone = account(Mode.REBIRTH, counts=[90, 95, 100], unsure=10)
    gone.check(gone.settle())


def test_but_what_was_never_sent_is_told() -> None:
    gone = account(Mode.REBIRTH, counts=[90, 95, 101], unsure=10)
    with pytest.raises(Violation, match="more packets came than were sent"):
        gone.check(gone.settle())
