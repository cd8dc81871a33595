# SPDX-License-Identifier: GPL-2.0-only
"""The checks of a device's reader, with and without a finding."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from doctor_changes import (
    BLOCKED,
    CALM,
    DOWN,
    EMPTY,
    FOREIGN,
    INFO,
    NOTHING_DELIVERED,
    QUEUES,
    SECOND,
    TX0,
    Change,
    Row,
    another_reader,
    asleep,
    assert_verdicts,
    both,
    changed,
    checks_of,
    every,
    later,
    machine,
    numbers,
    older,
    owner,
    queue,
    sockets,
    spaces,
    system,
    unchanged,
    verdicts,
    waits,
)
from hosts import NAME

from nodrop.doctor import reader
from nodrop.doctor.findings import Severity

KEPT = both(f"{INFO}.persist", True)
LEFT = both("flags", {NAME: {"tx-checksumming": True}})
HAS = system(in_kernel=["ovpn", "wireguard"])
TRIPS = later(f"{TX0}_guard_trips", 1)
LOSES = later(f"{TX0}_drop_guard", 40)
REOPENED = queue(ring=4, taken=-900, stalled_ms=50)
NO_READER = every(machine(holders=[]), both("links.0.flags", ["UP"]))
# The ring stays as full as it was, and no counter of the guard grows.
QUIET_GUARD = every(unchanged(f"{TX0}_guard_trips", f"{TX0}_drop_guard"), both(f"{TX0}_ring", 5))
STALLED = [both(f"{TX0}_guard_trips", 1), queue(ring=4, taken=9, stalled_ms=12_300)]
EDGE = [owner(edge=[NAME]), NOTHING_DELIVERED, CALM, queue(ring=3)]
BEHIND = [owner(edge=[NAME]), queue(ring=3, taken=80)]
UNSENT, UNREAD = sockets({"unsent": 5_000_000}), sockets({"unread": 5_000_000})
RX_BYTES, TX_BYTES = "links.0.stats64.rx.bytes", "links.0.stats64.tx.bytes"
UNMOVED = unchanged("links.0.stats64")
SENT_BYTES = every(UNMOVED, later(TX_BYTES, 1_000_000), later("links.0.stats64.tx.packets", 1000))
RECEIVED = every(UNMOVED, later(RX_BYTES, 1_000_000), later("links.0.stats64.rx.packets", 1000))
A_FEW = every(later(RX_BYTES, 5000), later("links.0.stats64.rx.packets", 50))
ONE_EDGE = owner(edge=[NAME])


def busy(data: dict[str, Any]) -> None:
    """The reader's first thread is always running."""
    for when in ("threads_before", "threads_after"):
        data[when] = data[when][:1]
    data["threads_after"][0]["run_s"] = data["threads_before"][0]["run_s"] + 60.0


def another_device(data: dict[str, Any]) -> None:
    """The reader has a second device open, whose packets may be those in its sockets."""
    for space in spaces(data):
        link = space["links"][0]
        space["links"].append({**link, "ifname": "tun9", "ifindex": link["ifindex"] + 1})
    owner(tun=[NAME, "tun9"])(data)


def short(data: dict[str, Any]) -> None:
    first, second = spaces(data)
    second["time_s"] = first["time_s"] + 0.2


READER: list[Row] = [
    ("ring-foreign", "nodrop", [FOREIGN], "fail"),
    ("ring-foreign", "nodrop", [], "ok"),
    ("no-reader", "stock", [NO_READER], "warn"),
    ("no-reader", "stock", [], "ok"),
    ("no-reader", "stock", [NO_READER, DOWN], None),
    ("reader-stuck", "stuck", [], "fail"),
    ("reader-stuck", "stuck", [QUIET_GUARD], "fail"),
    ("reader-stuck", "stuck", [EMPTY], "fail"),
    ("reader-stuck", "stuck", [QUIET_GUARD, EMPTY], "ok"),
    ("reader-stuck", "stuck", [older], "fail"),
    ("reader-stuck", "stock", [], "ok"),
    ("reader-stuck", "stock", [NOTHING_DELIVERED], "fail"),
    ("reader-stuck", "nodrop", [], "ok"),
    ("reader-stuck", "nodrop", SECOND, "warn"),
    ("reader-stuck", "nodrop", [*SECOND, later(f"stats.{NAME}.tx1_ring", 1)], "fail"),
    ("reader-stuck", "nodrop", [*SECOND, BLOCKED], "fail"),
    ("reader-stuck", "nodrop", [*SECOND, BLOCKED, CALM], "warn"),
    ("reader-stuck", "nodrop", [*SECOND, older], "ok"),
    ("reader-stuck", "nodrop", [*SECOND, short], "ok"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=4, stalled_ms=12_300), short], "warn"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=0)], "ok"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=4, taken=20)], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep()], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep("T")], "warn"),
    ("reader-stuck", "nodrop", [*EDGE, asleep(), another_reader], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep(run=0.115)], "warn"),
    ("reader-stuck", "nodrop", [*SECOND, CALM, asleep(), another_reader, ONE_EDGE], "warn"),
    ("reader-edge", "nodrop", [*EDGE, asleep()], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), older], "fail"),
    ("reader-edge", "nodrop", [*BEHIND, asleep()], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), queue(ring=0, taken=80)], "ok"),
    ("reader-edge", "nodrop", [*BEHIND], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(run=0.115)], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), another_reader], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=3, taken=1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), later(f"stats.{NAME}.tx0_ring", 1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=0)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), LOSES], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), TRIPS], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), short], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T")], "ok"),
    ("reader-edge", "nodrop", [*EDGE], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(run=0.115)], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), another_reader], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T"), another_reader], "ok"),
    ("reader-edge", "nodrop", [*SECOND, CALM, asleep(), another_reader, ONE_EDGE], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(edge=[])], None),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(vhost=1)], None),
    ("guard-tripped", "stuck", [], "warn"),
    ("guard-tripped", "nodrop", STALLED, "warn"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES], "fail"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES, older], "warn"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES, REOPENED], "warn"),
    ("guard-tripped", "nodrop", [*STALLED, queue(ring=4, stalled_ms=12_300), LOSES], "warn"),
    ("guard-tripped", "nodrop", [], "ok"),
    ("guard-tripped", "stock", [], None),
    ("reader-starved", "starved", [], "fail"),
    ("reader-starved", "nodrop", [], "ok"),
    ("reader-starved", "stock", [waits], "warn"),
    ("reader-starved", "stock", [], "ok"),
    ("reader-saturated", "nodrop", [busy], "warn"),
    ("reader-saturated", "stock", [], "ok"),
    ("vpn-queue", "stock", [UNSENT, SENT_BYTES], "note"),
    ("vpn-queue", "stock", [UNSENT, later(TX_BYTES, 10**10)], "ok"),
    ("vpn-queue", "stock", [UNSENT, RECEIVED], "ok"),
    ("vpn-queue", "stock", [UNREAD, RECEIVED], "note"),
    ("vpn-queue", "stock", [UNREAD, RECEIVED, later(RX_BYTES, 10**10)], "ok"),
    ("vpn-queue", "stock", [UNREAD, SENT_BYTES], "ok"),
    ("vpn-queue", "stock", [UNREAD, RECEIVED, owner(vhost=1)], None),
    ("vpn-queue", "stock", [UNREAD, RECEIVED, another_reader], None),
    ("vpn-queue", "stock", [UNREAD, RECEIVED, another_device], None),
    ("vpn-queue", "stock", [sockets({"unread": 60_000}), RECEIVED], "ok"),
    ("vpn-queue", "stock", [sockets({"unread": 5_000_000}, {}), RECEIVED], "ok"),
    # Too little passes to tell how long it waits.
    ("vpn-queue", "stock", [UNREAD, UNMOVED], None),
    ("vpn-queue", "stock", [UNREAD, UNMOVED, A_FEW], None),
    ("vpn-queue", "stock", [RECEIVED], None),
    ("several-queues", "stock", QUEUES, "note"),
    ("several-queues", "stock", [*QUEUES, owner(vhost=1)], None),
    ("offloads-left", "stock", [KEPT, LEFT], "warn"),
    ("offloads-left", "stock", [KEPT, LEFT, both(f"{INFO}.vnet_hdr", True)], None),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS], "note"),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS, both(f"{INFO}.type", "tap")], None),
    ("kernel-instead", "stock", [owner(name="wireguard-go"), HAS], "note"),
]


@pytest.mark.parametrize("check", checks_of(reader))
def test_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone, which has no nodrop in PATH."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert_verdicts(READER, check)


def test_checks_that_need_root_are_skipped() -> None:
    data = changed("stock", machine(holders=[], hidden=7, root=False))
    for sample in (data["before"], data["after"]):
        sample["unread"] = {"blue": "no right"}
    for check, device in (
        *(("reader-starved", NAME), ("reader-saturated", NAME)),
        ("namespaces", None),
    ):
        (result,) = verdicts(data, check, device)
        assert result.severity is Severity.SKIPPED


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ([], "python3(64)"),
        ([another_reader], "one of python3(64), python3(226)"),
        ([another_reader, queue(0, ring=4)], "python3(64), python3(226)"),
        ([owner(tun=[NAME, NAME]), another_reader], "python3(64), python3(226)"),
    ],
)
def test_only_who_has_the_unread_queue_is_named(changes: list[Change], who: str) -> None:
    """Each has one queue of two, and nothing shows which."""
    (result,) = verdicts(changed("nodrop", *SECOND, *changes), "reader-stuck")
    assert result.seen.startswith(f"{who} d")


@pytest.mark.parametrize("share", [0.115, 0.9])
def test_watched_for_edges_by_a_thread_that_may_work(share: float) -> None:
    """Neither says that no packet waits, nor names a process that is not watched for edges."""
    changes = [*BEHIND, asleep(run=share), another_reader]
    (result,) = verdicts(changed("nodrop", *changes), "reader-edge")
    assert result.seen.startswith("3 packets wait in the ring for python3(64), which")
    assert f" uses {share:.0%} of a CPU" in result.cost
    assert result.numbers["queue0_taken_packets_per_s"] > 40


def test_unread_queue_has_its_number_and_since_when() -> None:
    seconds = pytest.approx(49.63498112 - 47.79906304)
    second = {"dropped_packets_per_s": 0, "queue1_unread_s": seconds}
    one = numbers("reader-stuck", *SECOND)
    assert one == {**second, "unread_queues": 1, "ring_packets": 4}
    # It may have read some packets since the guard tripped.
    both_queues = numbers("reader-stuck", *SECOND, queue(0, ring=6, stalled_ms=12_300))
    assert both_queues == {
        **{**second, "unread_queues": 2, "ring_packets": 10},
        **{"queue0_unread_s": seconds, "queue0_stalled_s": 12.3},
    }
    edge = numbers("reader-edge", *EDGE, asleep())
    assert edge == {"ring_packets": 3, "queue0_unread_s": seconds}


WRAPS = [queue(ring=4), both(f"{TX0}_taken", (1 << 32) - 3), both(f"{TX0}_taken", 6, first=1)]


@pytest.mark.parametrize("changes", [[], WRAPS])
def test_stalled_reader_has_its_rate_and_since_when(changes: list[Change]) -> None:
    """What it took is modulo 2^32."""
    result = numbers("guard-tripped", *STALLED, *changes, both(f"{TX0}_stalled_ms", 12_300))
    assert result == {
        **{"guard_trips": 1, "queue0_stalled_s": 12.3},
        "queue0_taken_packets_per_s": pytest.approx(9 / 1.836, rel=0.01),
    }
