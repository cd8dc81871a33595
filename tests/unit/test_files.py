# SPDX-License-Identifier: GPL-2.0-only
"""The files of a run are checked before anything is made of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop import cli
from nodrop.bench.scenario import known
from nodrop.commands import common
from nodrop.errors import NodropError
from nodrop.guest.plan import RAW_NAME
from nodrop.report import files

RESULTS = Path(__file__).resolve().parents[2] / "results"
OLDER = Path(__file__).parent / "samples" / "runs"
Line = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in (files.META_NAME, RAW_NAME):
        shutil.copy(RESULTS / "tap" / name, tmp_path)
    return tmp_path


def lines(run: Path) -> list[Line]:
    return [json.loads(line) for line in (run / RAW_NAME).read_text().splitlines()]


def write(run: Path, made: list[Line]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in made)
    (run / RAW_NAME).write_text(text)


def metric(value: Any) -> Callable[[Line], None]:
    return lambda line: line["metrics"].update(delivered_pps=value)


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(NodropError, match="not the directory of a run"):
        files.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict.clear, "line 7 is not a result"),
        (lambda line: line.update(metrics=[1]), "line 7 is not a result"),
        (lambda line: line.update(scenario="tun"), "line 7: meta.json has no scenario 'tun'"),
        (lambda line: line.update(scenario=[]), "line 7 is not a result"),
        (lambda line: line.update(case="senders=9"), "line 7: meta.json has no case 'senders=9'"),
        (lambda line: line.update(variant="ours"), "line 7: meta.json has no driver 'ours'"),
        (lambda line: line.update(pair=10), "line 7: meta.json has no pair 10 of 10"),
        (lambda line: line.update(pair=-1), "line 7: meta.json has no pair -1 of 10"),
        (lambda line: line.update(pair="0"), "line 7: meta.json has no pair '0' of 10"),
        (metric(None), "line 7: delivered_pps is null, not a finite number"),
        (metric("9"), 'line 7: delivered_pps is "9", not a finite number'),
        (metric(True), "line 7: delivered_pps is true, not a finite number"),
        (metric(float("nan")), "line 7: delivered_pps is NaN, not a finite number"),
        (metric(float("inf")), "line 7: delivered_pps is Infinity, not a finite number"),
        (metric(10**400), "not a finite number"),
        (metric(-1.0), "line 7: delivered_pps is below 0"),
    ],
)
def test_a_line_that_cannot_be_is_named(
    change: Callable[[Line], None], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = lines(run)
    change(made[6])
    write(run, made)
    with pytest.raises(NodropError, match=re.escape(f"The data in {run / RAW_NAME} are")):
        files.load(run)
    assert cli.main(["report", str(run)]) == 1
    assert said in capsys.readouterr().err


def test_a_run_that_is_there_twice_is_refused(run: Path) -> None:
    made = lines(run)
    write(run, made + made)
    said = f"line {len(made) + 1} repeats line 1: tap senders=1,txqueuelen=500, stock, pair 0"
    with pytest.raises(NodropError, match=said):
        files.load(run)


def test_a_driver_that_was_not_measured_is_refused(run: Path) -> None:
    meta = json.loads((run / files.META_NAME).read_text())
    (run / files.META_NAME).write_text(json.dumps({**meta, "variants": ["stock", "nodrop"]}))
    with pytest.raises(NodropError, match=r"line 2: meta.json has no driver 'upstream'"):
        files.load(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": None}, "meta.json does not tell the machine"),
        ({"machine": {"cpus": 2}}, "meta.json does not tell the machine's cpu"),
        ({"kernel": None}, "meta.json does not tell the kernel"),
        ({"kernel": {}}, "meta.json does not tell the kernel's release"),
        ({"source": None}, "meta.json does not tell the source"),
        ({"started": None}, "meta.json does not tell when the run was started"),
        ({"variants": 3}, "are broken"),
        ({"schema": 99}, "schema that this version does not know"),
    ],
)
def test_metadata_that_lack_something(change: dict[str, Any], said: str, run: Path) -> None:
    meta = json.loads((run / files.META_NAME).read_text())
    kept = {key: value for key, value in {**meta, **change}.items() if value is not None}
    (run / files.META_NAME).write_text(json.dumps(kept))
    with pytest.raises(NodropError, match=said):
        files.load(run)


@pytest.mark.parametrize("name", ["latency_p99_ms", "latency_p50_ms", "goodput_mbit_per_s"])
def test_a_metric_that_one_driver_lacks_is_a_dash(name: str, tmp_path: Path) -> None:
    for file in (files.META_NAME, RAW_NAME):
        shutil.copy(RESULTS / "nullvpn" / file, tmp_path)
    made = lines(tmp_path)
    for line in made:
        if line["variant"] == "upstream":
            del line["metrics"][name]
    write(tmp_path, made)
    directory, _ = common.write_report(tmp_path)
    label = directory.scenarios["nullvpn"].metrics[name].label
    (row,) = (
        line for line in (tmp_path / "table.md").read_text().splitlines() if f"| {label}," in line
    )
    assert row.split(" | ")[3:5] == ["-", "-"]


@pytest.mark.parametrize(
    "path",
    [path for path in (*RESULTS.iterdir(), *OLDER.iterdir()) if path.name in known()],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_what_was_measured_passes(path: Path) -> None:
    assert files.load(path).notes == ()
