# SPDX-License-Identifier: GPL-2.0-only
"""The tables that are made of several results of the torture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.guest.torture import table
from nodrop.guest.torture.plan import make_round
from nodrop.guest.torture.result import Result


def result(label: str, seed: int, readers: set[str]) -> Result:
    found = Result(seed, 0, "nodrop", label)
    for event in make_round(1, 0).bouts[0][:3]:
        found.begins(event, readers)
    found.settled()
    found.packets.update(sent=1000, delivered=900, freed=100)
    return found


def test_results_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        result("debug", 5, {"poll"}),
        result("debug", 6, {"poll", "vhost"}),
        result("kasan", 5, {"poll"}),
    ]
    results[1].violation = "something"
    paths = []
    for number, one in enumerate(results):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(one.to_json()))
        paths.append(str(path))
    assert table.main(paths) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| debug | 2 | 6 | 2,000 | 1,800 | 1 | 5, 6 |" in lines
    assert "| kasan | 1 | 3 | 1,000 | 900 | 0 | 5 |" in lines
    assert "| event | poll | vhost |" in lines
    first = make_round(1, 0).bouts[0][:3]
    same = [event for event in first if event.kind == first[0].kind]
    assert f"| {first[0].kind} | {3 * len(same)} | {len(same)} |" in lines
