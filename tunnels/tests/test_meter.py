# SPDX-License-Identifier: GPL-2.0-only
"""One measurement of cycles, of the series and as stock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import on_terminal

from bench import rundir, scenario, session


def test_one_case(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    whole = scenario.load("tunnel-cycles").with_length(1, None)
    chosen = replace(whole, only="tunnel=vxlan,route=shared", seconds=0.2)
    with on_terminal(request) as progress:
        session.measure([chosen], [*chosen.variants], tmp_path / "run", progress)
    runs = {run.variant: run.metrics for run in rundir.load(tmp_path / "run").runs}
    assert [*runs] == [*chosen.variants]
    (run,) = runs.values()
    assert min(run["cycles_per_packet"], run["as_stock_cycles_per_packet"], run["sent"]) > 0
