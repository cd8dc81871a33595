# SPDX-License-Identifier: GPL-2.0-only
"""The checks of devices, with and without a finding; the reader's are in test_doctor_reader.py."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from doctor_changes import (
    AT_LIMIT,
    BESIDE,
    BLOCKED,
    CALM,
    DOWN,
    EMPTY,
    FEW,
    FOREIGN,
    FULL,
    LIVE,
    MANY_FLOWS,
    OFF,
    QUEUES,
    SECOND,
    TAP_DROPS,
    TARGET_5,
    TARGET_30,
    TX0,
    VHOST,
    Change,
    Row,
    assert_verdicts,
    both,
    changed,
    checks_of,
    every,
    files,
    later,
    numbers,
    older,
    owner,
    queue,
    spaces,
    tap,
    verdicts,
)
from hosts import NAME, set_at

from nodrop.doctor import device
from nodrop.doctor.observation import Record
from nodrop.host.model import Driver


def tunnel(dropped: int = 0) -> Change:
    return every(
        both("links.0.linkinfo", {"info_kind": "vxlan"}),
        both("links.0.stats64.tx.dropped", dropped),
        both("qdiscs.0.kind", "pfifo"),
        both("qdiscs.0.drops", 0),
    )


def stalled(root: str = "mq") -> Change:
    """One of the qdiscs below the root has packets and sends none."""

    def change(data: dict[str, Any]) -> None:
        for space in spaces(data):
            leaf = {"kind": "pfifo_fast", "parent": "1:1", "root": False, "qlen": 6, "packets": 40}
            space["qdiscs"].append({**space["qdiscs"][0], **leaf})
            space["qdiscs"][0]["kind"] = root

    return change


NO_PACE = both(f"{TX0}_pace_ns", 0)
VHOST_NODROP = every(VHOST, files(vhost_version="0.3.0", holders="tun vhost_net"))
TRICKLE = [queue(ring=4, taken=8)]
SAME_STOPS = both(f"{TX0}_stops", 54)
SMALLEST = both(f"{TX0}_limit", 4)
QUICK = later("qdiscs.0.bytes", 100_000)


def was_empty(data: dict[str, Any]) -> None:
    """The ring was empty in the first sample."""
    set_at(spaces(data)[0], f"{TX0}_ring", 0)


TX = "links.0.stats64.tx"


def carries(packets: int, size: int) -> list[Change]:
    """The device passes on packets of a size in bytes, into a ring of 500."""
    return [
        both("links.0.txqlen", 500),
        both(TX, {"packets": 100, "bytes": 6000, "dropped": 0}),
        later(f"{TX}.packets", packets),
        later(f"{TX}.bytes", packets * size),
    ]


LARGE = carries(1000, 64_000)
"""Packets of a TUN with offloads have up to 64 kB."""


DEVICE: list[Row] = [
    ("ring-drops", "stock", [], "fail"),
    ("ring-drops", "nodrop", [], "ok"),
    ("ring-drops", "noqueue", [], "fail"),
    ("ring-drops", "stuck", [], "fail"),
    ("ring-drops", "stock", [tap(), TAP_DROPS], "fail"),
    ("ring-dropped", "nodrop", [both("links.0.stats64.tx.dropped", 7)], "warn"),
    ("ring-dropped", "nodrop", [], "ok"),
    ("ring-dropped", "stock", [], None),
    ("no-ring", "stock", [both("links.0.txqlen", 0)], "fail"),
    ("no-ring", "stock", [], "ok"),
    ("big-ring", "stock", [both("links.0.txqlen", 1000)], "warn"),
    ("big-ring", "stock", [both("links.0.txqlen", 10000)], "warn"),
    ("big-ring", "stock", [both("links.0.txqlen", 500)], "ok"),
    ("big-ring", "nodrop", [both("links.0.txqlen", 10000)], "ok"),
    ("big-ring", "stock", [tap(), both("links.0.txqlen", 5000)], "ok"),
    ("big-ring", "nodrop", [both("links.0.txqlen", 10000), OFF], "warn"),
    ("big-ring", "stock", LARGE, "note"),
    ("big-ring", "stock", [*LARGE, both("links.0.txqlen", 1)], "ok"),
    ("big-ring", "stock", [*LARGE, both("links.0.mtu", 65535)], "ok"),
    ("big-ring", "stock", carries(1000, 1514), "ok"),
    ("big-ring", "stock", carries(100, 64_000), "ok"),
    ("big-ring", "nodrop", LARGE, "ok"),
    ("big-ring", "nodrop", [*LARGE, OFF], "note"),
    ("vhost-stock", "nodrop", [VHOST], "warn"),
    ("vhost-stock", "nodrop", [VHOST, FOREIGN], "fail"),
    ("vhost-stock", "nodrop", [VHOST, BESIDE], "warn"),
    ("vhost-stock", "nodrop", [VHOST_NODROP], "ok"),
    ("vhost-stock", "nodrop", [], None),
    ("vhost-stock", "stock", [tap(), owner(vhost=1)], "ok"),
    ("nodrop-off", "nodrop", [OFF], "warn"),
    ("nodrop-off", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [LIVE, OFF], "warn"),
    ("nodrop-off", "stock", [tap(on="N")], "warn"),
    ("noqueue", "noqueue", [], "fail"),
    ("noqueue", "nodrop", [both("qdiscs.0.kind", "noqueue")], "warn"),
    ("noqueue", "nodrop", [], "ok"),
    ("noqueue", "noqueue", [DOWN], None),
    ("noqueue", "noqueue", [OFF], None),
    ("noqueue", "stock", [both("qdiscs.0.kind", "noqueue")], None),
    ("noqueue", "stock", [tap()], None),
    ("bufferbloat", "nodrop", [], "warn"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.options.limit", 100)], "ok"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.kind", "fq_codel")], "ok"),
    ("bufferbloat", "stock", [], None),
    ("bufferbloat", "stock", [tap()], None),
    ("qdisc-drops", "nodrop", [FULL], "warn"),
    ("qdisc-drops", "nodrop", [FULL, *TARGET_5, MANY_FLOWS], "note"),
    ("qdisc-drops", "nodrop", [FULL, *TARGET_5], "ok"),
    ("qdisc-drops", "nodrop", [FEW, *TARGET_5, MANY_FLOWS], "ok"),
    ("qdisc-drops", "nodrop", [FULL, *TARGET_5, MANY_FLOWS, AT_LIMIT], "ok"),
    ("qdisc-drops", "nodrop", [FULL, *TARGET_30, MANY_FLOWS], "ok"),
    ("qdisc-drops", "stock", [FULL, *TARGET_5, MANY_FLOWS], "ok"),
    ("qdisc-drops", "nodrop", [FULL, both("qdiscs.0.kind", "cake")], "ok"),
    ("qdisc-stalled", "stock", [stalled()], "warn"),
    ("qdisc-stalled", "stock", [stalled("hfsc")], "note"),
    ("qdisc-stalled", "stock", [stalled(), later("qdiscs.1.packets", 1)], "ok"),
    ("qdisc-stalled", "nodrop", [stalled(), EMPTY], "warn"),
    ("qdisc-stalled", "nodrop", [stalled()], None),
    ("delay", "nodrop", [], "warn"),
    ("delay", "nodrop", TRICKLE, "warn"),
    ("delay", "nodrop", [*TRICKLE, SAME_STOPS], "note"),
    ("delay", "nodrop", [*TRICKLE, SAME_STOPS, SMALLEST], "warn"),
    ("delay", "nodrop", [*TRICKLE, both("qdiscs.0.kind", "fq_codel")], "warn"),
    ("delay", "nodrop", [*TRICKLE, was_empty], "note"),
    ("delay", "nodrop", [queue(ring=4, taken=100), QUICK], "note"),
    ("delay", "nodrop", [CALM], "ok"),
    ("delay", "nodrop", [CALM, queue(ring=400, taken=100)], "note"),
    ("delay", "nodrop", [CALM, queue(ring=4)], "note"),
    ("delay", "nodrop", [BLOCKED], "note"),
    ("delay", "nodrop", [later("qdiscs.0.packets", -400)], None),
    ("delay", "stock", [tap()], "note"),
    ("delay", "stock", [], None),
    ("delay", "nodrop", [both("stats", {})], None),
    ("delay", "nodrop", [*SECOND, CALM, older], None),
    ("tunnel-drops", "stock", [tunnel(), later("links.0.stats64.tx.dropped", 3)], "fail"),
    ("tunnel-drops", "stock", [tunnel(dropped=3)], "warn"),
    ("tunnel-drops", "stock", [tunnel()], "ok"),
    ("tunnel-qdisc-drops", "stock", [tunnel(), FULL], "warn"),
    ("tunnel-qdisc-drops", "stock", [tunnel()], "ok"),
]


@pytest.mark.parametrize("check", checks_of(device))
def test_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone, which has no nodrop in PATH."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert_verdicts(DEVICE, check)


@pytest.mark.parametrize("kind", ["macvtap", "ipvtap"])
def test_macvtap_counts_received_packets_as_sent(kind: str) -> None:
    (link,) = Record.from_json(changed("stock", tap(kind))).observation(frozenset([NAME])).links
    one = link.now
    assert (one.kind, one.direct, one.driver, one.enabled) == (kind, True, Driver.NODROP, True)
    assert (one.tx_packets, one.tx_bytes, one.tx_dropped) == (1000, 90000, 70)
    assert (one.rx_packets, one.rx_bytes, one.rx_dropped) == (3, 300, 0)
    assert one.drops_by_cause == {"unheld": 70}
    assert (one.queue[0].ring_packets, one.queue[0].limit_packets) == (7, 20)
    assert [owner.name for owner in one.owners] == ["python3"]


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        # A pace of 100 us in a ring that was empty; 22,632 bytes, of which 20,240 left in 1.84 s.
        ([was_empty], {"ring_wait_ms": 0.2, "qdisc_wait_ms": 2053}),
        ([CALM, queue(ring=400, taken=100), was_empty], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # 100 packets in 1.84 s of a ring that was not, as with a reader that pauses.
        ([CALM, queue(ring=400, taken=100)], {"ring_wait_ms": 7344, "qdisc_wait_ms": 0}),
        # 100,000 packets.
        ([CALM, queue(ring=400, taken=10**5)], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # Without a sample of its pace.
        ([CALM, queue(ring=4, taken=100), NO_PACE], {"ring_wait_ms": 73.4, "qdisc_wait_ms": 0}),
        ([CALM, queue(ring=4)], {"qdisc_wait_ms": 0}),
        ([BLOCKED, queue(ring=4)], {}),
        # The second queue of two.
        ([*SECOND, CALM], {"qdisc_wait_ms": 0}),
    ],
)
def test_delay_of_ring_and_qdisc(changes: list[Change], waits: dict[str, float]) -> None:
    result = numbers("delay", *changes)
    assert {key: of for key, of in result.items() if key.endswith("_ms")} == pytest.approx(
        waits, rel=0.01
    )
    assert result["queue"] == (1 if SECOND[-1] in changes else 0)


def test_bytes_of_large_packets() -> None:
    """Those of a TUN with offloads are estimated, those of its qdisc are counted."""
    result = numbers("delay", CALM, queue(ring=40, taken=1000), *LARGE)
    assert result["ring_estimate_bytes"] == 40 * 64_000
    result = numbers("delay", was_empty)
    assert (result["qdisc_packets"], result["qdisc_bytes"]) == (246, 22632)


def test_delay_of_full_rings() -> None:
    one, two = (numbers("big-ring", *LARGE, OFF, *queues) for queues in ([], QUEUES))
    assert one["packet_bytes"] == 64_000
    # As 500 packets wait for what takes 1.8 s for 1000.
    assert one["full_ring_ms"] == pytest.approx(918, rel=0.01)
    assert two["full_ring_ms"] == 2 * one["full_ring_ms"]


def test_reader_that_sets_the_pace_is_named() -> None:
    (result,) = verdicts(changed("nodrop", *TRICKLE), "delay")
    assert result.cost.startswith("python3(64) takes 4.4 packets/s")
    assert result.numbers["taken_packets_per_s"] == pytest.approx(8 / 1.836, rel=0.01)
    (shaped,) = verdicts(changed("nodrop", *TRICKLE, SAME_STOPS), "delay")
    assert "python3" not in shaped.cost, "the queue was not stopped"
