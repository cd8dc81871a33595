# SPDX-License-Identifier: GPL-2.0-only
"""Short runs of the scenarios with each driver: nodrop accounts for every packet."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench import rundir, scenario, session
from bench.report import summary
from guest.conftest import FLAVOUR
from guestlib.vpns import KINDS
from lab.variant import COMPARED, Variant
from nodrop.progress import Progress

SHORT_S = 0.3
LONGER_S = {"vpn": 1.0}
"""Scenario -> length of a run in which TCP has to start, s."""
REPEAT_S = 60.0
"""How long to repeat runs with implausible metrics: the machine may have stood still."""

CASES: dict[str, dict[str, list[int | float | str | bool]]] = {
    "esp": {"txqueuelen": [500], "batch": [64]},
    "latency": {"qdisc": ["cake"]},
    "latency-rings": {"txqueuelen": [10]},
    "macvtap-beside": {"reader": ["read", "vhost"]},
    "macvtap-paths": {"path": ["wire", "sibling", "guest"], "reader": ["read", "vhost"]},
    "scale": {"queues": [4], "flows": [8]},
    "scale-sizes": {"payload": ["65000", "44x1472"]},
    "shaping": {"bottleneck": ["reader"], "qdisc": ["cake"]},
    "shaping-shares": {"bottleneck": ["shaper"], "qdisc": ["htb-own"]},
    "tap-qdiscs": {"qdisc": ["noqueue", "pfifo_fast"], "senders": [2], "reader_cpu": [1]},
    "tcp": {"reader": ["vhost", "user"], "flows": [2]},
    "vhost-latency": {"txqueuelen": [500]},
    "vhost-qdiscs": {"qdisc": ["noqueue", "pfifo_fast"], "senders": [2], "worker_cpu": [-1]},
    "vhost-unpinned": {"qdisc": ["pfifo_fast"], "senders": [2]},
    "vpn": {"vpn": [*KINDS], "txqueuelen": [10], "rtt_ms": [20], "warm_up_s": [1]},
    "vpn-video": {"txqueuelen": [25]},
}
"""Scenario -> the matrix of its few cases here."""

ANY = (1e-9, math.inf)
PLAUSIBLE: dict[str, dict[str, tuple[float, float]]] = {
    "esp": {"received_mbit_per_s": ANY, "vpn_cpu_us_per_packet": ANY},
    "latency": {"latency_p50_ms": ANY, "latency_p99_ms": ANY},
    "latency-rings": {"latency_p50_ms": ANY, "latency_p999_ms": ANY},
    "macvtap-beside": {"fast_beside_ratio": ANY, "slow_read": ANY},
    "macvtap-paths": {"delivered_pps": ANY},
    "scale": {"busiest_queue_share": (0.2, 1), "sender_cpu_us_per_packet": ANY},
    "scale-sizes": {"busiest_queue_share": (1, 1), "delivered_pps": ANY},
    "shaping": {},
    "shaping-shares": {"first_share_percent": (0, 100)},
    "tap-qdiscs": {"delivered_pps": ANY},
    "tcp": {"goodput_mbit_per_s": ANY, "bytes_per_packet": (60, 65600)},
    "vhost-latency": {"latency_p50_ms": ANY, "bytes_per_packet": (1500, 65600)},
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
"""Scenario -> metrics, and their ranges on any machine."""


def measured(chosen: scenario.Scenario, out: Path) -> list[rundir.Run]:
    """Run a scenario with each driver; fail unless nodrop accounts for every packet."""
    variants = [name for name in COMPARED if name in session.available(chosen)]
    with Progress() as progress:
        session.measure([chosen], variants, out, progress)
    directory = rundir.load(out)
    assert {run.variant for run in directory.runs} == set(map(str, variants))
    # Uncounted drops of the stock drivers are in the reports, and no fault of nodrop's.
    ours = [run for run in summary.unaccounted(directory) if run.variant == Variant.NODROP]
    assert ours == []
    assert summary.lost_by_nodrop(directory) == 0
    assert not any(run.metrics.get("refused_by_client") for run in directory.runs)
    return directory.runs


@pytest.mark.parametrize("name", CASES)
def test_a_short_run(name: str, tmp_path: Path) -> None:
    seconds = LONGER_S.get(name, SHORT_S)
    chosen = replace(scenario.load(name), matrix=CASES[name], kernel=FLAVOUR).with_length(
        1, seconds
    )
    ranges = {"delivered": ANY, **PLAUSIBLE[name]}
    end = time.monotonic() + REPEAT_S
    for attempt in itertools.count():
        wrong = [
            f"{run.variant}: {metric} {run.metrics[metric]}"
            for run in measured(chosen, tmp_path / f"{attempt}")
            for metric, (low, high) in ranges.items()
            if not low <= run.metrics[metric] <= high
        ]
        if not wrong:
            return
        assert time.monotonic() < end, wrong
