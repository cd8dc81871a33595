# SPDX-License-Identifier: GPL-2.0-only
"""From a run's raw data to its numbers, plot and page."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench import commands, rundir, scenario
from bench.plan import RAW_NAME
from bench.report import page, plot, summary, table
from bench.rundir import Run, jobs
from lab.cli import main
from lab.sources import REPOSITORY
from lab.variant import COMPARED
from nodrop.errors import NodropError

RESULTS = {
    str(path.parent.relative_to(REPOSITORY)): path.parent
    for folder in ("results", "tunnels/results")
    for path in sorted((REPOSITORY / folder).glob("*/raw*.gz"))
}
FACTOR = {"stock": 1.0, "upstream": 1.1, "nodrop": 1.2}
PAIRS = 6
TAP = scenario.load("tap")
CASE = "senders=1,txqueuelen=500"
QUIET = {"wall_s": 1.0, "others_cpu_share": 0.01, "steal_share": 0.0}
Line = dict[str, Any]


def make_run(
    path: Path, nodrop_lost: int = 0, change: Callable[[Line], Any] = lambda _: None
) -> Path:
    """Write the directory of a run of tap; ``change`` is called with its seventh line."""
    chosen = TAP.with_length(PAIRS, 0.1)
    meta = {
        "schema": rundir.META_SCHEMA,
        "started": "2026-01-01T00:00:00+00:00",
        "machine": {"cpu": "A <b> & CPU", "cpus": 2},
        "kernel": {"release": "7.3.4", "package": "linux-source-7.3 7.3.4-1", "build_id": "x"},
        "source": {"version": "0.3.0"},
        "continued": [],
        "variants": list(FACTOR),
        "scenarios": {"tap": asdict(chosen)},
    }
    (path / rundir.META_NAME).write_text(json.dumps(meta))
    lines = []
    for job in jobs([chosen], COMPARED):
        variant = str(job.variant)
        metrics = {
            "delivered_pps": 100_000.0 * (1 + job.pair / 100) * FACTOR[variant],
            "lost": {"stock": 1000, "upstream": 0, "nodrop": nodrop_lost}[variant],
            "unaccounted": 0,
        }
        names = {"scenario": "tap", "case": job.case, "variant": variant, "pair": job.pair}
        lines.append({**names, "metrics": metrics})
    change(lines[6])
    (path / RAW_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def keep(path: Path, wanted: Callable[[Line], bool]) -> Path:
    raw = path / RAW_NAME
    kept = [text for text in raw.read_text().splitlines() if wanted(json.loads(text))]
    raw.write_text("".join(f"{text}\n" for text in kept))
    return path


def summarised(path: Path) -> dict[str, Any]:
    return summary.summarise(rundir.load(path))["tap"]


def test_ratios_are_paired_and_cases_joined(tmp_path: Path) -> None:
    tap = summarised(make_run(tmp_path))
    ratio = tap["ratios"]["nodrop/stock"]["delivered_pps"]
    # The machine's speed changes from pair to pair, which does not affect paired ratios.
    assert (ratio["low"], ratio["high"]) == (pytest.approx(1.2), pytest.approx(1.2))
    # Cases are not pairs: they make no interval narrower.
    assert (ratio["n"], tap["pairs"]) == (PAIRS, PAIRS)
    # Six cases: counts are summed, rates have a geometric mean.
    assert tap["variants"]["stock"]["lost"]["median"] == 6000
    assert tap["variants"]["stock"]["delivered_pps"]["median"] == pytest.approx(102_500)
    assert tap["cases"][CASE]["variants"]["stock"]["lost"]["median"] == 1000
    assert "lost" not in tap["ratios"]["nodrop/upstream"]  # no ratios to 0


def test_incomplete_pairs_and_cases(tmp_path: Path) -> None:
    gone = (CASE, "stock", 0), (CASE, "nodrop", 1)
    keep(make_run(tmp_path), lambda line: (line["case"], line["variant"], line["pair"]) not in gone)
    assert summarised(tmp_path)["pairs"] == PAIRS - 2
    keep(tmp_path, lambda line: line["case"] != CASE)
    directory, found = commands.write_report(tmp_path)
    assert table.total_label(directory.scenarios["tap"], found["tap"]) == "5 of 6 cases"


@pytest.mark.parametrize("kept", ["nodrop", "stock"])
def test_single_driver_has_no_ratios(tmp_path: Path, kept: str) -> None:
    keep(make_run(tmp_path), lambda line: line["variant"] == kept)
    _, found = commands.write_report(tmp_path)
    assert found["tap"]["ratios"] == {}
    assert list(found["tap"]["variants"]) == [kept]


@pytest.mark.parametrize("done", [1, 4, 20])
def test_report_of_killed_run(tmp_path: Path, done: int) -> None:
    raw = make_run(tmp_path) / RAW_NAME
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join(lines[:done]) + lines[done][:20])
    directory, found = commands.write_report(tmp_path)
    assert (len(directory.runs), found["tap"]["runs"]) == (done, done)


@pytest.mark.parametrize(
    ("lost", "qdisc", "counted"), [(0, "fq_codel", 0), (4, "fq_codel", 144), (4, "noqueue", 0)]
)
def test_lost_by_nodrop(tmp_path: Path, lost: int, qdisc: str, counted: int) -> None:
    meta = make_run(tmp_path, lost) / rundir.META_NAME
    data = json.loads(meta.read_text())
    data["scenarios"]["tap"]["parameters"]["qdisc"] = qdisc
    meta.write_text(json.dumps(data))
    directory = rundir.load(tmp_path)
    assert summary.lost_by_nodrop(directory) == counted
    assert commands.check(directory) == bool(counted)


def test_unaccounted_packets(tmp_path: Path) -> None:
    make_run(tmp_path, change=lambda line: line["metrics"].update(unaccounted=3))
    directory = rundir.load(tmp_path)
    assert [run.metrics["unaccounted"] for run in summary.unaccounted(directory)] == [3]
    assert commands.check(directory) == 1


def metric(value: Any) -> Callable[[Line], Any]:
    return lambda line: line["metrics"].update(delivered_pps=value)


@pytest.mark.parametrize(
    "change",
    [
        dict.clear,
        lambda line: line.update(metrics=[1]),
        lambda line: line.update(scenario="tun"),
        lambda line: line.update(case="senders=9"),
        lambda line: line.update(variant="ours"),
        lambda line: line.update(pair=PAIRS),
        lambda line: line.update(pair="0"),
        lambda line: line.update(pair=0, case=CASE, variant="stock"),  # a duplicate
        metric(None),
        metric(True),
        metric(math.nan),
        metric(10**400),
        metric(-1.0),
    ],
)
def test_invalid_line_is_refused(change: Callable[[Line], Any], tmp_path: Path) -> None:
    make_run(tmp_path, change=change)
    with pytest.raises(NodropError, match="line 7"):
        rundir.load(tmp_path)
    assert main(["report", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"machine": None},
        {"machine": {"cpus": 2}},
        {"kernel": {}},
        {"variants": ["stock", "ours"]},
        {"variants": ["stock"]},
        {"schema": 99},
        {"source": None},
        {"scenarios": {"tap": {**asdict(TAP), "matrix": {"txqueuelen": 500}}}},
        {"scenarios": {"tap": {**asdict(TAP), "only": None}}},
    ],
)
def test_incomplete_metadata(change: dict[str, Any], tmp_path: Path) -> None:
    meta = make_run(tmp_path) / rundir.META_NAME
    meta.write_text(json.dumps(json.loads(meta.read_text()) | change))
    with pytest.raises(NodropError):
        rundir.load(tmp_path)


@pytest.mark.parametrize("name", ["source", "started", "continued"])
def test_missing_metadata(name: str, tmp_path: Path) -> None:
    meta = make_run(tmp_path) / rundir.META_NAME
    rest = {key: value for key, value in json.loads(meta.read_text()).items() if key != name}
    meta.write_text(json.dumps(rest))
    with pytest.raises(NodropError):
        rundir.load(tmp_path)


@pytest.mark.parametrize("name", RESULTS)
def test_results_can_be_read(name: str) -> None:
    path = RESULTS[name]
    directory = rundir.load(path)
    found = summary.summarise(directory)
    assert plot.panels(found, directory.meta["variants"])
    # table.md matches the raw data.
    made = table.markdown(table.sections(directory, found), table.note(directory, found))
    assert made == (path / rundir.MARKDOWN_NAME).read_text(encoding="utf-8")


def test_page_is_complete_and_offline(tmp_path: Path) -> None:
    directory, found = commands.write_report(make_run(tmp_path))
    text = (tmp_path / rundir.PAGE_NAME).read_text(encoding="utf-8")
    assert all(source.startswith("data:") for source in re.findall(r'(?:src|href)="([^"]*)', text))
    assert (text.count("<img "), text.count("<table")) == (1, 1)
    # Names in the data are escaped.
    assert "<b>" not in text
    assert "A &lt;b&gt; &amp; CPU" in text
    # The same data give the same bytes.
    assert page.page(directory, found) == text


def of(variant: str, values: list[float], host: dict[str, float] | None = None) -> list[Run]:
    return [
        Run("tap", CASE, variant, pair, {"delivered_pps": value}, host)
        for pair, value in enumerate(values)
    ]


SAME = [100.0] * 10


@pytest.mark.parametrize(
    ("made", "noisy"),
    [
        (of("stock", SAME, QUIET), False),
        (of("stock", SAME, {**QUIET, "others_cpu_share": 0.05}), False),
        (of("stock", SAME, {**QUIET, "others_cpu_share": 0.06}), True),
        (of("stock", SAME, {**QUIET, "steal_share": 0.02}), False),
        (of("stock", SAME, {**QUIET, "steal_share": 0.03}), True),
        (of("stock", [60, 60, 60, 100, 100, 140, 140, 140], QUIET), True),
        # Too few runs, or nothing recorded: unknown.
        (of("stock", SAME[:3], QUIET), None),
        (of("stock", SAME), None),
    ],
)
def test_noisy(made: list[Run], noisy: bool | None) -> None:
    found = summary.noise(TAP, made)
    assert found["noisy"] is noisy


def test_disturbed_runs() -> None:
    loads = [0.01, 0.2, 0.01, 0.01, 0.01, 0.01]
    made = [*of("stock", SAME[:4], QUIET), *of("nodrop", SAME[:1], {**QUIET, "steal_share": 0.03})]
    made += [
        run for load in loads for run in of("nodrop", [1.0], {**QUIET, "others_cpu_share": load})
    ]
    found = summary.noise(TAP, made)
    assert (found["noisy"], found["disturbed_runs"]) == (False, 2)


def test_invalid_noise_lines_are_skipped() -> None:
    text = '{"run": 0, "wall_s": 1}\n[]\n{"run": 1, "wa\n{"run": 0, "wall_s": 2}\n{"run": 2}\n'
    text += '{"run": 0, "wall_s": NaN}\n{"run": 1.5}\n'
    assert rundir.parse_noise(text) == {0: {"wall_s": 2.0}, 2: {}}


def test_interval_of_known_samples() -> None:
    """Ranks from the published tables of the sign test, two-sided 95 %."""
    for n, low, high in ((6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (25, 8, 18), (40, 14, 27)):
        values = [float(value) for value in range(1, n + 1)]
        random.Random(n).shuffle(values)
        found = summary.interval(values)
        assert (found["low"], found["high"], found["n"]) == (low, high, n)
        assert found["confidence"] >= summary.CONFIDENCE


def test_join() -> None:
    assert summary.join([1, 4, 16], "geometric mean") == pytest.approx(4)
    assert summary.join([0, 5], "geometric mean") == 0
    assert summary.join([2, 8], "sum") == 10
    assert summary.join([0, 8], "mean") == pytest.approx(4)


FIGURE = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\]")
SOURCE = re.compile(r"`([\w/-]+?)(/table.md)?`( \(\w\))? \|$")


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/macvtap.md", "docs/published.md", "docs/results.md", "docs/vpns.md"],
)
def test_published_figures_are_those_of_the_tables(name: str) -> None:
    """Figures with an interval in rows that name a result are those of its table."""
    checked, wrong = 0, []
    for line in (REPOSITORY / name).read_text(encoding="utf-8").splitlines():
        source = SOURCE.search(line)
        if source and (table := REPOSITORY / "results" / source[1] / "table.md").exists():
            known = FIGURE.findall(table.read_text(encoding="utf-8"))
            for figure in FIGURE.findall(line):
                checked += 1
                # A page may round more than the table.
                places = [len(number.partition(".")[2]) for number in figure]
                if not any(
                    all(
                        abs(float(a) - float(b)) <= 0.5001 * 10**-digits
                        for a, b, digits in zip(figure, one, places, strict=True)
                    )
                    for one in known
                ):
                    wrong.append((source[1], figure))
    assert checked
    assert not wrong


def test_the_plot_in_readme_is_that_of_the_results(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/results.md").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if "nodrop-lab figure" in line]
    assert lines
    for _, command, file, *names in lines:
        assert main([command, f"{tmp_path}/plot.svg", *(f"{REPOSITORY}/{n}" for n in names)]) == 0
        assert (tmp_path / "plot.svg").read_text() == (REPOSITORY / file).read_text()


def test_figure_of_no_latency(tmp_path: Path) -> None:
    make_run(tmp_path)
    assert main(["figure", f"{tmp_path}/plot.svg", str(tmp_path)]) == 1
    assert not (tmp_path / "plot.svg").exists()


def test_figure_shows_the_latest_case_of_a_name() -> None:
    def part(scenario: str, **cases: int) -> dict[str, Any]:
        return {"scenario": scenario, "cases": cases}

    parts = [part("vpns", tinc=1, nebula=2), part("tap", tinc=5), part("vpns", tinc=3)]
    assert summary.latest_cases(parts) == [part("vpns", tinc=3, nebula=2), parts[1]]


@pytest.mark.parametrize(("part", "name"), rundir.COMPARABLE)
def test_figure_of_runs_that_differ(
    part: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = REPOSITORY / "results/series/nullvpn-gso"
    shutil.copytree(one, tmp_path / "other")
    meta = tmp_path / "other" / rundir.META_NAME
    changed = json.loads(meta.read_text())
    changed[part][name] = 3
    meta.write_text(json.dumps(changed))
    plot_file = tmp_path / "plot.svg"
    assert main(["figure", str(plot_file), str(one), str(tmp_path / "other")]) == 1
    assert f"differ in {part} {name}" in capsys.readouterr().err
    assert not plot_file.exists()
