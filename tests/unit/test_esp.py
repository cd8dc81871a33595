# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from typing import Any

import pytest

from nodrop.guest.counters import LinkCounters, QdiscCounters
from nodrop.guest.scenarios.base import DeviceCounts
from nodrop.guest.scenarios.esp import Said, esp_metrics

USAGE = {"cpu_seconds": 0.001, "voluntary_switches": 10, "involuntary_switches": 20}
SENDER = {
    "sent": 1000,
    "seconds": 0.5,
    "eagain": 0,
    "enobufs": 0,
    "other_errors": 0,
    "longest_send_ns": 2_000_000,
    **USAGE,
}
COUNTS = DeviceCounts(LinkCounters(700, 0, 250), QdiscCounters("fq_codel", 950, 47, 0, 3))
NEAR = {"sealed": {"packets": 698, "refused": 2, "polls": 11}, "socket_drops": 0, **USAGE}


def sink(packets: int, drops: int) -> dict[str, Any]:
    return {"packets": packets, "socket_drops": drops, "active_seconds": 0.4, **USAGE}


def test_every_packet_of_the_near_side() -> None:
    found = esp_metrics(Said(SENDER, NEAR, sink(685, 8)), COUNTS, 5, 1400)
    assert found["unaccounted"] == 0
    assert found["lost"] == 250
    assert found["qdisc_drops"] == 47
    assert found["lost_elsewhere"] == 2 + 5 + 8
    assert found["lost_outer_socket"] == 8
    assert found["loss_percent"] == pytest.approx(31.5)
    assert found["sent_mbit_per_s"] == pytest.approx(1000 * 1400 * 8 / 0.5 / 1e6)
    assert found["received_mbit_per_s"] == pytest.approx(685 * 1400 * 8 / 0.4 / 1e6)
    assert found["vpn_cpu_us_per_packet"] == pytest.approx(1000 / 685)
    assert found["sender_voluntary_switches_per_s"] == 20


def test_a_packet_that_nobody_counted() -> None:
    found = esp_metrics(Said(SENDER, NEAR, sink(684, 8)), COUNTS, 5, 1400)
    assert found["unaccounted"] == 1
