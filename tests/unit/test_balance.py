# SPDX-License-Identifier: GPL-2.0-only
"""The account of the torture's packets, of a device that says what a test wants it to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodrop.guest.torture import balance
from nodrop.guest.torture.balance import Balance, Sums, Violation
from nodrop.guest.torture.plan import Mode, Round, rounds
from nodrop.guest.torture.readers import Taken
from nodrop.guest.torture.senders import payload
from nodrop.guest.torture.shared import Field
from nodrop.guest.torture.victim import Victim


def sums(**changes: int) -> Sums:
    values = {"sent": 100, "delivered": 90, "freed": 10, "full": 0, "refused": 0, "held": 0}
    return Sums(**{**values, "unsure": 0, "frames": 0, "unseen": 0, **changes})


def test_the_balance() -> None:
    assert sums().balanced
    assert not sums(delivered=89).balanced, "one is missing"
    assert not sums(delivered=89, held=1).balanced, "one is held"
    assert not sums(delivered=91).balanced, "one came twice"
    assert sums(delivered=91, unsure=1).balanced
    assert sums(delivered=93, unseen=3).balanced
    assert not sums(delivered=93, frames=3).balanced, "frames are counted apart"
    assert not sums(delivered=89, unsure=1, unseen=3).balanced, "one is missing"


def test_packets_end_in_one_piece() -> None:
    assert 20 + 8 + len(payload(255, 1 << 40)) <= 68, "the smallest MTU of IPv4"


@dataclass
class Device:
    """A device that stands still."""

    tx_packets: int = 0
    tx_dropped: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)
    readers: list[Any] = field(default_factory=list)
    queues: tuple[Any, ...] = ()
    remade: int = 0
    closed: int = 0
    unclaimed: int = 0
    index: int = 1

    @property
    def net(self) -> Any:
        return SimpleNamespace(queued=lambda _index: 0, stats=lambda _index: self)

    def delivered(self) -> int:
        return self.tx_packets

    def counters(self) -> Mapping[str, int]:
        return self.counted

    def ring(self) -> int:
        return 0

    def inflight(self) -> int:
        return 0


def reader(packets: int, frames: int = 0, *, kind: str = "poll", killed: bool = False) -> Any:
    taken = Taken(packets, frames)
    return SimpleNamespace(
        kind=kind, exact=not killed, taken=lambda: taken, check=lambda: "", where=lambda: ""
    )


def sender(kind: str, count: int) -> Any:
    counts = {Field.COUNT: count}
    return SimpleNamespace(kind=kind, job=SimpleNamespace(get=lambda name: counts.get(name, 0)))


def late_reader(counts: list[int]) -> Any:
    """Counts what it has read a while after it took it, as one that got no CPU does."""
    made = reader(0)
    made.taken = lambda: Taken(counts.pop(0) if len(counts) > 1 else counts[0])
    return made


def account(
    mode: Mode,
    device: Device,
    *,
    senders: tuple[Any, ...] = (),
    freed: int = 0,
    full: int = 0,
    unsure: int = 0,
) -> Balance:
    """The account of a device; so many packets were freed, and met a full ring, meanwhile."""
    plan: Round = next(plan for plan in rounds(1) if plan.mode is mode)
    now = {"freed": 0, "full": 0}
    victim = cast("Victim", device)
    made = Balance(plan, victim, list(senders), lambda: now["freed"], lambda: now["full"])
    now |= {"freed": freed, "full": full}
    made.unsure = unsure
    return made


def late(mode: Mode, counts: list[int], *, delivered: int = 0, unsure: int = 0) -> Balance:
    """The account of 90 packets, whose reader counts late."""
    device = Device(delivered, readers=[late_reader(counts)])
    return account(mode, device, senders=(sender("udp", 90),), unsure=unsure)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "STILL_S", 0.05)


def test_readers_that_count_late_agree_with_their_device() -> None:
    held = late(Mode.HELD, [80, 80, 90], delivered=90)
    held.check(held.settle())


def test_readers_that_disagree_with_their_device_are_told() -> None:
    held = late(Mode.HELD, [89], delivered=90)
    with pytest.raises(Violation, match="readers read 89 packets"):
        held.check(held.settle())


def test_readers_that_count_for_a_device_that_went_may_be_late() -> None:
    gone = late(Mode.REBIRTH, [90, 95, 100], unsure=10)
    gone.check(gone.settle())


def test_but_what_was_never_sent_is_told() -> None:
    gone = late(Mode.REBIRTH, [90, 95, 101], unsure=10)
    with pytest.raises(Violation, match="more packets came than were sent"):
        gone.check(gone.settle())


def test_frames_hide_no_missing_packet() -> None:
    senders = (sender("udp", 100), sender("xdp", 50))
    whole = account(Mode.WILD, Device(150, readers=[reader(150, 50)]), senders=senders).sums()
    assert (whole.missing, whole.balanced) == (0, True)
    short = account(Mode.WILD, Device(149, readers=[reader(149, 50)]), senders=senders).sums()
    assert (short.missing, short.balanced) == (1, False)


@pytest.mark.parametrize(("kind", "unseen"), [("poll", 1), ("vhost", 50)])
def test_who_was_killed_may_not_have_counted_a_frame(kind: str, unseen: int) -> None:
    senders = (sender("udp", 100), sender("xdp", 50))
    readers = [reader(80, 30), reader(69, 19, kind=kind, killed=True)]
    found = account(Mode.WILD, Device(150, readers=readers), senders=senders).sums()
    assert (found.missing, found.unseen, found.balanced) == (-1, unseen, True)


def test_without_frames_a_kill_explains_nothing() -> None:
    device = Device(101, readers=[reader(101, killed=True)])
    found = account(Mode.WILD, device, senders=(sender("udp", 100),)).sums()
    assert (found.missing, found.unseen, found.balanced) == (-1, 0, False)


def checked(device: Device, mode: Mode = Mode.WILD) -> None:
    device.readers = [reader(device.tx_packets)]
    made = account(mode, device, senders=(sender("udp", 100),), freed=30, full=20)
    made.check(made.sums())


def test_drops_with_their_causes_are_right() -> None:
    counted = {"tx0_drop_off": 13, "tx1_drop_guard": 7, "tx0_drop_purged": 5, "tx0_stops": 9}
    checked(Device(70, 25, counted))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tx_dropped": 19}, "the device counts 19"),
        ({"counted": {"tx0_drop_off": 19}}, "19 drops have a cause"),
        ({"counted": {"tx0_drop_off": 21}}, "21 drops have a cause"),
        ({"unclaimed": 1}, "a queue that was closed had drop_unclaimed 1"),
        ({"counted": {"tx0_drop_off": 19, "tx0_drop_unclaimed": 1}}, "tx0_drop_unclaimed is 1"),
    ],
)
def test_a_drop_that_is_not_counted_so_is_seen(change: dict[str, Any], words: str) -> None:
    device = replace(Device(70, 20, {"tx0_drop_off": 20}), **change)
    with pytest.raises(Violation, match=words):
        checked(device)


@pytest.mark.parametrize(
    "change", [{"closed": 1, "counted": {"tx0_drop_off": 3}}, {"counted": {}}, {"remade": 1}]
)
def test_counters_that_went_are_not_asked(change: dict[str, Any]) -> None:
    checked(replace(Device(70, 20, {"tx0_drop_off": 20}), **change))


def test_a_full_ring_drops_nothing_where_it_may_not() -> None:
    with pytest.raises(Violation, match="a full ring dropped"):
        checked(Device(70, 20, {"tx0_drop_off": 20}), Mode.HELD)
