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
        found.happened(event, frozenset(readers))
    found.settled()
    found.ended = True
    found.packets.update(sent=1000, delivered=900, freed=100)
    return found


def test_results_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        result("debug", 5, {"poll"}),
        result("debug", 6, {"poll", "vhost"}),
        result("kasan", 5, {"poll"}),
    ]
    results[1].violation = "something"
    results[1].ended = False
    paths = []
    for number, one in enumerate(results):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(one.to_json()))
        paths.append(str(path))
    assert table.main(paths) == 0
    lines = capsys.readouterr().out.splitlines()
    count = results[0].life_events
    assert count
    assert f"| debug | 2 | {2 * count} | 2,000 | 1,800 | 1 | 5, 6 (cut short) |" in lines
    assert f"| kasan | 1 | {count} | 1,000 | 900 | 0 | 5 |" in lines
    assert "| event | poll | vhost |" in lines
    first = make_round(1, 0).bouts[0][:3]
    same = [event for event in first if event.kind == first[0].kind]
    assert f"| {first[0].kind} | {3 * len(same)} | {len(same)} |" in lines


def test_faults_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "fault_some.output"
    output.write_text(
        "1..2\n"
        '# survived {"fault": "a signal", "reader": "poll", "count": 40}\n'
        '# survived {"fault": "a signal", "reader": "poll", "count": 2}\n'
        '# survived {"fault": "no memory", "reader": "", "count": 1300}\n'
        "ok 1 some\n"
    )
    assert table.main([str(output)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| fault | no reader | poll |",
        "|---|---:|---:|",
        "| a signal |  | 42 |",
        "| no memory | 1,300 |  |",
    ]
