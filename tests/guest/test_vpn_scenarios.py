# SPDX-License-Identifier: GPL-2.0-only
"""Each VPN makes a short run of its scenario: every packet of its device is accounted for."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import rundir, scenario
from bench.guest.plan import PLAN_NAME, RAW_NAME, write_plan
from bench.report.files import parse_raw
from lab import uml
from lab.guest.variant import Variant
from lab.guest.vpns import KINDS
from lab.kernel import Artifacts, Kernel
from lab.kernel.artifacts import REPOSITORY

VARIANTS = (Variant.UPSTREAM, Variant.NODROP)
"""With upstream's flag the run fails when a device turns out to be without it."""
SECONDS = 1
TIMEOUT_S = 240.0
RTT_MS = 20


@pytest.mark.parametrize("vpn", KINDS)
def test_a_short_run(vpn: str, kernel: Kernel, artifacts: Artifacts, tmp_path: Path) -> None:
    known = scenario.load("vpn")
    short = {**known.parameters, "vpn": vpn, "rtt_ms": RTT_MS, "warm_up_s": 1}
    chosen = replace(known, parameters=short, matrix={"txqueuelen": [10]})
    jobs = rundir.jobs([chosen.with_length(1, SECONDS)], VARIANTS)
    write_plan(tmp_path / PLAN_NAME, jobs)
    done = uml.run(
        kernel,
        [sys.executable, "-m", "bench.guest"],
        out=tmp_path,
        artifacts=artifacts,
        timeout=TIMEOUT_S,
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    assert done.status == 0, done.output
    assert done.splats == ()
    runs = parse_raw((tmp_path / RAW_NAME).read_text(encoding="utf-8"))
    assert {run.variant for run in runs} == set(map(str, VARIANTS))
    for run in runs:
        found = run.metrics
        assert set(chosen.metrics) <= set(found)
        assert found["unaccounted"] == 0
        assert found["netem_drops"] == 0
        assert found["delivered"] > 0
        assert found["goodput_mbit_per_s"] > 0
        assert found["rtt_idle_ms"] >= RTT_MS
        assert found["rtt_mean_ms"] >= RTT_MS
        assert found["near_vpn_cpu_percent"] > 0
        assert found["far_vpn_cpu_percent"] > 0
        if run.variant == Variant.NODROP:
            assert found["lost"] == 0
            assert found["driver_tx0_stops"] > 0
