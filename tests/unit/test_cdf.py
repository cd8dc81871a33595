# SPDX-License-Identifier: GPL-2.0-only
"""The distribution of round-trip times: from the raw data to its panels."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.bench import scenario
from nodrop.guest.scenarios.nullvpn import distribution
from nodrop.report import cdf, files, look, page, plot, summary

RESULTS = Path(__file__).resolve().parents[2] / "results"
DRIVERS = ("stock", "upstream", "nodrop")
SHARES = (1, 100, 500, 900, 990, 999)


def made(path: Path) -> files.RunDirectory:
    """A run of latency-rings, whose times are known: ring, driver and share of the probes."""
    chosen = scenario.load("latency-rings")
    shutil.copytree(RESULTS / "nullvpn", path)
    meta = json.loads((path / files.META_NAME).read_text())
    meta["scenarios"] = {"latency-rings": chosen.to_data()}
    (path / files.META_NAME).write_text(json.dumps(meta))
    lines = []
    for pair in range(6):
        for case in chosen.cases():
            for nth, driver in enumerate(DRIVERS, start=1):
                probe = {
                    str(share): int(case.parameters["txqueuelen"]) * nth * (share + pair) * 1000
                    for share in SHARES
                }
                metrics = dict.fromkeys(chosen.metrics, 1.0 + pair)
                metrics |= distribution({"distribution_ns": probe})
                lines.append(
                    {"scenario": "latency-rings", "case": case.name, "variant": driver}
                    | {"pair": pair, "metrics": metrics}
                )
    (path / "raw.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return files.load(path)


def test_the_line_is_the_median_over_the_pairs(tmp_path: Path) -> None:
    found = summary.summarise(made(tmp_path / "run"))["latency-rings"]
    line = cdf.points(found["cases"]["txqueuelen=10"]["variants"]["upstream"])
    assert [share for share, _ in line] == [share / 1000 for share in SHARES]
    for share, data in line:
        whole = round(share * 1000)
        wanted = [10 * 2 * (whole + offset) / 1000 for offset in (0, 2.5, 5)]
        assert [data[name] for name in ("low", "median", "high")] == pytest.approx(wanted)
    ends = (10 * 1 * 3.5 / 1000, 1000 * 3 * (999 + 2.5) / 1000)
    assert cdf.span(found["cases"].values()) == pytest.approx(ends)


def test_a_panel_for_each_case(tmp_path: Path) -> None:
    directory = made(tmp_path / "run")
    summaries = summary.summarise(directory)
    own = [panel for panel in plot.panels(summaries, DRIVERS) if panel.case]
    assert [panel.title for panel in own] == [
        "Latency: ring 1000",
        "Latency: ring 500",
        "Latency: ring 100",
        "Latency: ring 10",
    ]
    text = page.page([page.Part(directory, summaries)])
    assert "By case: ring 100. latency p50 ms: stock" in text
    plot.write(directory, summaries)
    assert all((directory.path / name).exists() for name in files.PLOT_NAMES)


def test_lines_differ_without_colour(tmp_path: Path) -> None:
    directory = made(tmp_path / "run")
    summaries = summary.summarise(directory)
    panel = next(panel for panel in plot.panels(summaries, DRIVERS) if panel.case)
    drawn = plot.svg(panel, DRIVERS)
    looks = {}
    for colour in (look.COLOURS[name] for name in DRIVERS):
        style = re.search(rf'style="fill: none; ([^"]*)stroke: {colour};([^"]*)"', drawn)
        assert style
        dashes = re.search(r"stroke-dasharray: ([^;]*)", "".join(style.groups()))
        looks[colour] = dashes[1] if dashes else "solid"
    assert len(set(looks.values())) == len(DRIVERS)
    assert len({look.MARKERS[name] for name in DRIVERS}) == len(DRIVERS)


def test_older_data_have_no_distribution() -> None:
    loaded = files.load(RESULTS / "nullvpn")
    runs = [
        replace(run, metrics={key: run.metrics[key] for key in run.metrics if "_cdf_" not in key})
        for run in loaded.runs
    ]
    found = summary.summarise(replace(loaded, runs=runs))
    assert not any(panel.case for panel in plot.panels(found, DRIVERS))
