# SPDX-License-Identifier: GPL-2.0-only
"""What a fast guest gets beside a slow one: the table of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.guest.taps import second
from nodrop.report.second import main, ratios, table


def line(beside: bool, pps: float, repetition: int = 0, **more: Any) -> dict[str, Any]:
    slow = {"slow_sent": 700, "slow_read": 500, "slow_dropped": 200, "slow_held": 3}
    case = {"way": "veth", "reader": "read", "sockets": 16, "rate": 0, "driver": "stock"}
    return {
        **case,
        "repetition": repetition,
        "beside": beside,
        "fast_pps": pps,
        **(slow if beside else {}),
        **more,
    }


def test_each_repetition_is_compared_with_itself() -> None:
    first = [line(False, 100), line(True, 50), line(True, 70), line(False, 140)]
    other = [line(beside, 10, 1) for beside in second.ORDER]
    assert ratios([*first, *other]) == [0.5, 1.0]


def test_a_repetition_without_an_end_is_left_out() -> None:
    assert ratios([line(False, 100), line(True, 50, 1), line(False, 100, 1)]) == [0.5]


def test_what_the_slow_one_lost_is_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(beside, 1000 - 100 * beside) for beside in second.ORDER]
    lines += [line(beside, 10, driver="nodrop", rate=200) for beside in second.ORDER]
    rows = table(lines)
    assert rows[2] == (
        "| veth | read | 16 | stock | 1,000 | 0.90 [0.90, 0.90] | 1,400 | 1,000 | 400 | 3 |"
    )
    assert rows[3].startswith("| veth | read | 16 at 200/s | nodrop | 10 | 1.00 ")
    path = tmp_path / "second.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == rows
