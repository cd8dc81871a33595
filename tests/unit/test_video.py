# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import pytest

from nodrop.bench import scenario
from nodrop.guest.counters import LinkCounters, QdiscCounters
from nodrop.guest.scenarios.base import DeviceCounts
from nodrop.guest.scenarios.vpnvideo import CLIPS, video_metrics

SAID = {
    "sent": 200,
    "received": 140,
    "send_errors": 0,
    "pictures": 8,
    "damaged": 2,
    "p50_ns": 3_000_000,
    "p99_ns": 9_000_000,
    "max_ns": 10_000_000,
    "latest_send_ns": 500_000,
}
BEFORE = DeviceCounts(LinkCounters(7, 0, 3), QdiscCounters("fq_codel", 0, 0, 0, 0))


def after(read: int, dropped: int) -> DeviceCounts:
    return DeviceCounts(LinkCounters(read, 0, dropped), QdiscCounters("fq_codel", 0, 5, 0, 0))


def test_what_was_there_before_does_not_count() -> None:
    found = video_metrics(SAID, BEFORE, after(7 + 145, 3 + 50))
    assert found["unaccounted"] == 0
    assert (found["delivered"], found["lost"], found["qdisc_drops"]) == (145, 50, 5)
    assert found["lost_elsewhere"] == 5
    assert found["lost_percent"] == pytest.approx(30)
    assert found["damaged_frames_percent"] == pytest.approx(25)
    assert found["delay_p99_ms"] == pytest.approx(9)


def test_a_packet_that_nobody_counted() -> None:
    assert video_metrics(SAID, BEFORE, after(7 + 145, 3 + 49))["unaccounted"] == 1


def test_the_clip_is_a_stream_with_bursts() -> None:
    """Ten seconds at 30 a second, some pictures far larger than a ring of 25 packets."""
    parameters = scenario.load("vpn-video").parameters
    lines = (CLIPS / f"{parameters['clip']}.txt").read_text(encoding="utf-8").splitlines()
    sizes = [int(line) for line in lines if not line.startswith("#")]
    assert len(sizes) == 300
    assert 5 < sum(sizes) * 8 / 10 / 1e6 < 50
    assert max(sizes) > 25 * 2 * int(parameters["payload_bytes"])
