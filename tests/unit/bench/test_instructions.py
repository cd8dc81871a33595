# SPDX-License-Identifier: GPL-2.0-only
"""Instructions per packet: cases, arithmetic, tables, checks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import instructions as bench
from bench.guest import instructions as guest
from bench.guest.costcases import CASES
from bench.report import costs
from guestlib.environment import Environment
from guestlib.failure import Unsupported
from lab.variant import Variant
from nodrop.errors import NodropError

RESULTS = Path(__file__).resolve().parents[3] / "results" / "instructions"
NOWHERE = Environment(Path("/none"), Path("/none"), Path("/none"))


def result(variant: str, ticks: list[int], **more: Any) -> dict[str, Any]:
    rounds = [{"sent": 40, "delivered": 20, "ticks": t, "idle_ms": 0} for t in ticks]
    return {
        "case": "full",
        "axes": {"ring": "full"},
        "variant": variant,
        "loop_instructions": 20_000_000,
        "loop_ticks": 20_100_000,
        "rounds": rounds,
        "sent": 100,
        "delivered": 50,
        "lost": 50,
        "unaccounted": 0,
        **more,
    }


def skipped(variant: str) -> dict[str, Any]:
    return {"case": "g", "axes": {"gso": "44"}, "variant": variant, "skipped": "too old"}


def test_unsupported_case_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_args: object) -> dict[str, Any]:
        raise Unsupported("too old")

    monkeypatch.setattr(guest, "measure", measure)
    (case,) = [case for case in CASES if case.name == "gso=44"]
    line = guest.result(case, Variant.STOCK, NOWHERE)
    assert line == {**skipped("stock"), "case": "gso=44"}


def test_costs_over_all_rounds() -> None:
    results = [result("stock", [2000, 2400]), result("nodrop", [1000]), result("stock", [2200])]
    found = costs.costs(results)["full"]
    assert found["stock"].per_packet == (100.0, 120.0, 110.0)
    assert (found["stock"].median, found["stock"].delivered, found["stock"].lost) == (110, 100, 100)
    assert found["stock"].spread == pytest.approx(20 / 110)
    assert found["nodrop"].median == 50


def test_table_from_raw_data(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "again")
    (tmp_path / "again" / "table.md").unlink()
    assert bench.main(["--table", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again/table.md").read_text() == (RESULTS / "table.md").read_text()
    with pytest.raises(NodropError):
        bench.main(["--table", str(tmp_path)])


@pytest.mark.parametrize(
    "more",
    [
        {"loop_ticks": 19_999_999},
        {"loop_ticks": 20_400_001},
        {"unaccounted": -1},
        {"rounds": [{"ticks": 1, "delivered": 1, "idle_ms": 10}]},
    ],
)
def test_check_refuses_invalid_results(more: Mapping[str, Any]) -> None:
    costs.check([result("stock", [2000]), skipped("nodrop")])
    for results in ([result("stock", [2000]), result("nodrop", [2000], **more)], []):
        with pytest.raises(NodropError):
            costs.check(results)
