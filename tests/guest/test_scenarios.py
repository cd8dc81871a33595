# SPDX-License-Identifier: GPL-2.0-only
"""Short runs of the scenarios with each driver: nodrop accounts for every packet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FLAVOUR

from bench import programs, rundir, scenario, session
from bench.report import summary
from guestlib.vpns import PACKAGED
from lab.variant import COMPARED, Variant
from nodrop.progress import Progress

SHORT_S = 1.0
"""Length of a run, s: TCP starts, both classes arrive, and a busy machine sends some UDP."""

CASES: dict[str, scenario.Matrix] = {
    "esp": {"txqueuelen": [500], "batch": [64]},
    "esp-paced": {"batch": [64], "sender_rate_pps": [1000]},
    "flent": {"txqueuelen": [500]},
    "flent-rrul": {"txqueuelen": [500]},
    "latency": {"qdisc": ["cake"]},
    "latency-rings": {"txqueuelen": [10]},
    "macvtap-beside": {"reader": ["read", "vhost"]},
    "macvtap-paths": {"path": ["wire", "sibling", "guest"], "reader": ["read", "vhost"]},
    "multiflow": {"offloads": [True], "flows": [2]},
    "scale": {"queues": [4], "flows": [8]},
    "scale-sizes": {"payload": ["65000", "44x1472"]},
    "shaping": {"bottleneck": ["reader"], "qdisc": ["cake"]},
    "shaping-shares": {"bottleneck": ["shaper"], "qdisc": ["htb-own"]},
    "tap-qdiscs": {"qdisc": ["noqueue", "pfifo_fast"], "senders": [2], "reader_cpu": [1]},
    "tcp": {"reader": ["vhost", "user"], "flows": [2]},
    "nullvpn-forwarded": {"flows": [2]},
    "vhost-latency-forwarded": {"flows": [1]},
    "vhost-latency-qdiscs": {"qdisc": ["noqueue", "mq"]},
    "vhost-qdiscs": {"qdisc": ["noqueue", "pfifo_fast"], "senders": [2], "worker_cpu": [-1]},
    "vhost-qdiscs-target": {"qdisc": ["pfifo_fast"], "senders": [2], "target_us": [20000]},
    "vhost-unpinned": {"qdisc": ["pfifo_fast"], "senders": [2]},
    "vpn": {"vpn": [*PACKAGED], "txqueuelen": [10], "rtt_ms": [20], "warm_up_s": [1]},
    "vpn-video": {"txqueuelen": [25]},
    "vpns": {
        "vpn": [*PACKAGED],
        "flows": [2],
        "warm_up_s": [1],
        "cake": ["", "bandwidth 60mbit"],
    },
}
"""Scenario -> the matrix of its few cases here."""

EXACT = {
    "scale-sizes": {"busiest_queue_share": 1},
    "vpn": {"netem_drops": 0},
    "vpn-video": {"pictures": 30},
    "vpns": {"netem_drops": 0},
}
"""Scenario -> metrics that do not depend on the machine's speed."""
AT_LEAST = {
    "vpn": {"rtt_idle_ms": 20, "rtt_mean_ms": 20},
    "vpns": {"idle_p50_ms": 20, "latency_p50_ms": 20},
}
LONGER_S = {"flent": 3.0, "flent-rrul": 4.0}
"""Scenario -> length of a run, s: flows start up to a second apart, on a busy machine two."""
AT_MOST = {"esp-paced": {"offered": 1000 * SHORT_S + 32}}


def measured(chosen: scenario.Scenario, out: Path) -> list[rundir.Run]:
    """Run each case of a scenario once with each driver; fail unless nodrop accounts for all."""
    variants = [name for name in COMPARED if name in session.available(chosen)]
    with Progress() as progress:
        session.measure([chosen], variants, out, progress)
    # Checks that all metrics are finite, too.
    directory = rundir.load(out)
    planned = {(case.name, str(name)) for case in chosen.cases() for name in variants}
    assert {(run.case, run.variant) for run in directory.runs if not run.skipped} == planned
    # Uncounted drops of the stock drivers are in the reports, and no fault of nodrop's.
    ours = [run for run in summary.unaccounted(directory) if run.variant == Variant.NODROP]
    assert ours == []
    assert summary.lost_by_nodrop(directory) == 0
    assert not any(run.metrics.get("refused_by_client") for run in directory.runs)
    return directory.runs


@pytest.mark.parametrize("name", CASES)
def test_a_short_run(name: str, tmp_path: Path) -> None:
    chosen = replace(scenario.load(name), matrix=CASES[name], kernel=FLAVOUR)
    chosen = chosen.with_length(1, LONGER_S.get(name, SHORT_S))
    if chosen.kind == "flent" and not all(map(programs.find, chosen.programs)):
        pytest.skip("flent or a program of it is not installed: scripts/bootstrap flent")
    runs = measured(chosen, tmp_path / "run")
    for run in runs:
        assert chosen.metrics.keys() <= run.metrics.keys()
    # A machine that stands still may send no UDP in one of several cases.
    sent = [run for run in runs if run.metrics.get("offered", run.metrics.get("sent", 1))]
    assert {run.variant for run in sent} == {run.variant for run in runs}
    for run in sent:
        assert run.metrics["delivered"] > 0
        assert EXACT.get(name, {}).items() <= run.metrics.items()
        for metric, low in AT_LEAST.get(name, {}).items():
            assert run.metrics[metric] >= low
        for metric, high in AT_MOST.get(name, {}).items():
            assert run.metrics[metric] <= high


def test_a_device_without_a_reader(tmp_path: Path) -> None:
    """Stock drops, and upstream's flag blocks for good; nodrop drops once its guard has tripped."""
    matrix: scenario.Matrix = {"device": ["tap"], "senders": [1], "txqueuelen": [5]}
    chosen = replace(scenario.load("guard"), matrix=matrix, kernel=FLAVOUR)
    runs = measured(chosen.with_length(1, SHORT_S), tmp_path / "run")
    assert all(chosen.metrics.keys() <= run.metrics.keys() for run in runs)
    stock, flag, ours = (run.metrics for run in runs)
    assert stock["dropped"] > 0 == stock["multicast_not_released"]
    assert flag["multicast_not_released"] > 0
    assert ours["trips"] > 0 or ours["dropped"] == 0
