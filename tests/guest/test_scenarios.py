# SPDX-License-Identifier: GPL-2.0-only
"""One short run of scenarios with each driver: nodrop accounts for every packet."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench import scenario, session
from bench.report import files, summary
from guest.conftest import FLAVOUR
from lab.guest.variant import Variant
from lab.guest.vpns import KINDS
from nodrop.progress import Progress

SHORT_S = 0.3
LONGER_S = {"vpn": 1.0}
"""By scenario: how long a run is whose TCP has to begin."""

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
    "vpn": {"vpn": [*KINDS], "txqueuelen": [10], "rtt_ms": [20], "warm_up_s": [1]},
    "vpn-video": {"txqueuelen": [25]},
}
"""By scenario: the matrix of its few cases here."""

ANY = (1e-9, math.inf)
PLAUSIBLE: dict[str, dict[str, tuple[float, float]]] = {
    "esp": {"received_mbit_per_s": ANY, "vpn_cpu_us_per_packet": ANY},
    "latency": {"latency_p50_ms": ANY, "latency_cdf_500_ms": ANY},
    "latency-rings": {"latency_p50_ms": ANY, "latency_cdf_999_ms": ANY},
    "scale": {"busiest_queue_share": (0.2, 1), "sender_cpu_us_per_packet": ANY},
    "scale-sizes": {"busiest_queue_share": (1, 1), "delivered_pps": ANY},
    "shaping": {"first_due_percent": (0, math.inf)},
    "shaping-shares": {"first_share_percent": (0, 100)},
    "tap-qdiscs": {"delivered_pps": ANY},
    "tcp": {"goodput_mbit_per_s": ANY, "bytes_per_packet": (60, 65600)},
    "vhost-qdiscs": {"delivered_pps": ANY},
    "vhost-unpinned": {"delivered_pps": ANY},
    "vpn": {
        "goodput_mbit_per_s": ANY,
        "rtt_idle_ms": (20, math.inf),
        "rtt_mean_ms": (20, math.inf),
        "netem_drops": (0, 0),
    },
    "vpn-video": {"delay_p50_ms": ANY, "pictures": (9, 9)},
}
"""By scenario: metrics, and the range that any machine gives."""


@pytest.mark.parametrize("name", CASES)
def test_a_short_run(name: str, tmp_path: Path) -> None:
    seconds = LONGER_S.get(name, SHORT_S)
    chosen = replace(scenario.load(name), matrix=CASES[name]).with_length(1, seconds)
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
