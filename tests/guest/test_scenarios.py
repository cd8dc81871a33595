# SPDX-License-Identifier: GPL-2.0-only
"""One short run of scenarios with each driver: nodrop accounts for every packet."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.bench import scenario, session
from nodrop.guest.plan import Variant
from nodrop.progress import Progress
from nodrop.report import files, summary

FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "debug")
SHORT_S = 0.3

CASES: dict[str, dict[str, list[int | float | str | bool]]] = {
    "esp": {"txqueuelen": [500], "batch": [64]},
    "latency": {"qdisc": ["cake"]},
    "latency-rings": {"txqueuelen": [10]},
    "scale": {"queues": [4], "flows": [8]},
    "scale-sizes": {"payload": ["65000", "44x1472"]},
    "shaping": {"bottleneck": ["reader"], "qdisc": ["cake"]},
    "shaping-shares": {"bottleneck": ["shaper"], "qdisc": ["htb-own"]},
    "tap-qdiscs": {"qdisc": ["noqueue", "pfifo_fast"], "senders": [2], "reader_cpu": [1]},
    "tcp": {"reader": ["vhost", "user"], "flows": [2]},
    "vhost-qdiscs": {"qdisc": ["noqueue", "pfifo_fast"], "senders": [2], "worker_cpu": [-1]},
    "vhost-unpinned": {"qdisc": ["pfifo_fast"], "senders": [2]},
    "vpn-video": {"txqueuelen": [25]},
}
"""By scenario: the matrix of its few cases here."""

PLAUSIBLE: dict[str, dict[str, tuple[float, float]]] = {
    "esp": {"received_mbit_per_s": (0.1, 1e5), "vpn_cpu_us_per_packet": (1, 1e6)},
    "latency": {"latency_p50_ms": (0.001, 5000), "latency_cdf_500_ms": (0.001, 5000)},
    "latency-rings": {"latency_p50_ms": (0.001, 5000), "latency_cdf_999_ms": (0.001, 5000)},
    "scale": {"busiest_queue_share": (0.2, 1), "sender_cpu_us_per_packet": (0.1, 1e5)},
    "scale-sizes": {"busiest_queue_share": (1, 1), "delivered_pps": (1, 1e7)},
    "shaping": {"first_due_percent": (1, 300), "first_latency_p50_ms": (0.001, 5000)},
    "shaping-shares": {"first_share_percent": (1, 99)},
    "tap-qdiscs": {"delivered_pps": (1, 1e8)},
    "tcp": {"goodput_mbit_per_s": (0.01, 1e6), "bytes_per_packet": (60, 65600)},
    "vhost-qdiscs": {"delivered_pps": (1, 1e8)},
    "vhost-unpinned": {"delivered_pps": (1, 1e8)},
    "vpn-video": {"delay_p50_ms": (0.01, 1e5), "pictures": (9, 9)},
}
"""By scenario: metrics, and the range that any machine gives."""


@pytest.mark.parametrize("name", CASES)
def test_a_short_run(name: str, tmp_path: Path) -> None:
    chosen = replace(scenario.load(name), matrix=CASES[name]).with_length(1, SHORT_S)
    with Progress() as progress:
        session.measure([chosen], tuple(Variant), tmp_path, progress, FLAVOUR)
    directory = files.load(tmp_path)
    assert {run.variant for run in directory.runs} == set(map(str, Variant))
    # What the kernel's own drivers drop without counting is in the reports, and no fault of ours.
    ours = [run for run in summary.unaccounted(directory) if run.variant == Variant.NODROP]
    assert ours == []
    assert summary.lost_by_nodrop(directory) == 0
    for run in directory.runs:
        assert run.metrics["delivered"] > 0
        assert run.metrics.get("refused_by_client", 0) == 0
        for metric, (low, high) in PLAUSIBLE[name].items():
            assert low <= run.metrics[metric] <= high, (run.variant, metric)
