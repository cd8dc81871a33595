# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nodrop.bench import scenario
from nodrop.bench.order import jobs
from nodrop.commands import common
from nodrop.guest.plan import Variant
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.report import files, plot, rows, summary, table

FACTOR = {"stock": 1.0, "upstream": 1.1, "nodrop": 1.2}
LATENCY = {"stock": 20.0, "upstream": 24.0, "nodrop": 4.0}
PAIRS = 6
SKIPPED = (("stock", 0), ("nodrop", 1))


def result(job: Any, nodrop_lost: int) -> dict[str, Any]:
    variant = str(job.variant)
    speed = 100_000.0 * (1 + job.pair / 100)
    lost = {"stock": 1000, "upstream": 0, "nodrop": nodrop_lost}[variant]
    metrics: dict[str, float] = {"lost": lost, "unaccounted": 0}
    if job.kind == "nullvpn":
        metrics |= {
            "latency_p50_ms": LATENCY[variant],
            "latency_p99_ms": 2 * LATENCY[variant],
            "goodput_mbit_per_s": 100 * FACTOR[variant],
            "retransmits": 0,
        }
    else:
        metrics |= {"delivered_pps": speed * FACTOR[variant], "qdisc_drops": 5}
    return {
        "scenario": job.scenario,
        "case": job.case,
        "variant": variant,
        "pair": job.pair,
        "metrics": metrics,
    }


def make_run(path: Path, names: tuple[str, ...] = ("tap", "nullvpn"), nodrop_lost: int = 0) -> Path:
    chosen = [scenario.load(name).with_length(PAIRS, 0.1) for name in names]
    meta = {
        "schema": files.META_SCHEMA,
        "started": "2026-01-01T00:00:00+00:00",
        "machine": {"cpu": "A CPU", "cpus": 2},
        "kernel": {"release": "7.3.4", "package": "linux-source-7.3 7.3.4-1", "build_id": "x"},
        "source": {},
        "variants": list(FACTOR),
        "scenarios": {entry.name: entry.to_data() for entry in chosen},
    }
    path.mkdir(exist_ok=True)
    (path / files.META_NAME).write_text(json.dumps(meta))
    lines = [json.dumps(result(job, nodrop_lost)) for job in jobs(chosen, tuple(Variant))]
    (path / "raw.jsonl").write_text("\n".join(lines) + "\n")
    return path


def test_ratios_are_paired_and_cases_joined(tmp_path: Path) -> None:
    tap = summary.summarise(files.load(make_run(tmp_path)))["tap"]
    ratio = tap["ratios"]["nodrop/stock"]["delivered_pps"]
    # The machine's speed changes from pair to pair; a paired ratio does not notice.
    assert ratio["low"] == pytest.approx(1.2)
    assert ratio["high"] == pytest.approx(1.2)
    # Cases are no pairs: they make no interval narrower.
    assert ratio["n"] == PAIRS
    assert tap["cases"]["senders=1,txqueuelen=5"]["ratios"]["nodrop/stock"]["lost"]["n"] == PAIRS
    assert tap["ratios"]["upstream/stock"]["delivered_pps"]["median"] == pytest.approx(1.1)
    assert tap["ratios"]["nodrop/upstream"]["delivered_pps"]["median"] == pytest.approx(1.2 / 1.1)
    # Six cases: losses add up, rates have a geometric mean.
    assert tap["variants"]["stock"]["lost"]["median"] == 6000
    assert tap["variants"]["stock"]["delivered_pps"]["median"] == pytest.approx(102_500)
    assert tap["cases"]["senders=1,txqueuelen=5"]["variants"]["stock"]["lost"]["median"] == 1000


def test_other_work_on_the_machine_is_told(tmp_path: Path) -> None:
    meta = make_run(tmp_path) / "meta.json"
    meta.write_text(meta.read_text().replace("{", '{"others_cpu_share": 0.4, ', 1))
    common.write_report(tmp_path)
    text = " ".join((tmp_path / "table.txt").read_text().split())
    assert "Noisy machine: tap: other programs took 40% of the CPUs; nullvpn: other" in text


def test_the_order_is_that_of_the_data() -> None:
    names = [f"driver{number}" for number in range(20)]
    whole = summary.joined([{name: {0: 1.0} for name in names}], "sum")
    assert list(whole) == names


def test_schema(tmp_path: Path) -> None:
    for name, entry in summary.summarise(files.load(make_run(tmp_path))).items():
        assert entry["schema"] == 1
        assert entry["scenario"] == name
        assert entry["kernel"]["release"] == "7.3.4"
        assert set(entry["variants"]) == {"stock", "upstream", "nodrop"}
        assert entry["runs"] == PAIRS * 3 * len(entry["cases"])
        for part in (entry, *entry["cases"].values()):
            for group in (*part["variants"].values(), *part["ratios"].values()):
                for numbers in group.values():
                    assert set(numbers) == {"median", "low", "high", "n", "confidence"}
                    assert numbers["low"] <= numbers["median"] <= numbers["high"]


def test_ratio_of_several_cases_is_their_mean(tmp_path: Path) -> None:
    raw = make_run(tmp_path) / "raw.jsonl"
    lines = []
    for line in raw.read_text().splitlines():
        run = json.loads(line)
        if (run["case"], run["variant"]) == ("senders=1,txqueuelen=5", "nodrop"):
            run["metrics"]["delivered_pps"] *= 64
        lines.append(json.dumps(run))
    raw.write_text("\n".join(lines) + "\n")
    tap = summary.summarise(files.load(tmp_path))["tap"]
    # The sixth root of 64 is 2.
    assert tap["ratios"]["nodrop/stock"]["delivered_pps"]["low"] == pytest.approx(2.4)


def test_a_pair_counts_when_all_cases_have_it(tmp_path: Path) -> None:
    raw = make_run(tmp_path) / "raw.jsonl"
    lines = raw.read_text().splitlines()
    assert summary.summarise(files.load(tmp_path))["tap"]["pairs"] == PAIRS
    last = max(number for number, line in enumerate(lines) if '"tap"' in line)
    raw.write_text("\n".join([*lines[:last], *lines[last + 1 :]]) + "\n")
    assert summary.summarise(files.load(tmp_path))["tap"]["pairs"] == PAIRS - 1


def test_a_pair_counts_when_all_drivers_have_it(tmp_path: Path) -> None:
    raw = make_run(tmp_path, ("tap",)) / "raw.jsonl"
    lines = raw.read_text().splitlines(keepends=True)
    case = lines[0].index('"variant"')
    # Of one case stock lacks the first pair and nodrop the second: each has five runs.
    gone = [lines[0][:case] + f'"variant": "{who}", "pair": {nth}' for who, nth in SKIPPED]
    kept = [line for line in lines if not line.startswith(tuple(gone))]
    assert len(kept) == len(lines) - 2
    raw.write_text("".join(kept))
    assert summary.summarise(files.load(tmp_path))["tap"]["pairs"] == PAIRS - 2


def test_cases_without_a_run_are_not_called_all(tmp_path: Path) -> None:
    raw = make_run(tmp_path, ("tap",)) / "raw.jsonl"
    lines = raw.read_text().splitlines(keepends=True)
    directory, summaries = common.write_report(tmp_path)
    assert table.sections(directory, summaries)[0].rows[-2].case == "all cases"
    raw.write_text("".join(lines[:12]))
    directory, summaries = common.write_report(tmp_path)
    assert table.sections(directory, summaries)[0].rows[-2].case == "4 of 6 cases"
    page = (tmp_path / files.PAGE_NAME).read_text()
    assert "all cases" not in page
    assert '<tbody class="all"><tr><th scope="rowgroup" rowspan="2">4 of 6 cases</th>' in page


def test_cases_that_are_left_out_are_missed(tmp_path: Path) -> None:
    directory, summaries = common.write_report(make_run(tmp_path, ("tap",)))
    tap = directory.scenarios["tap"]
    assert rows.whole(tap, summaries["tap"]) == "all cases"
    fewer = dict(list(summaries["tap"]["cases"].items())[1:])
    left = replace(tap, left_out={"senders=1,txqueuelen=500": "a program"})
    assert rows.whole(left, {**summaries["tap"], "cases": fewer}) == "5 of 6 cases"


def test_no_ratio_to_zero(tmp_path: Path) -> None:
    tap = summary.summarise(files.load(make_run(tmp_path)))["tap"]
    assert "lost" not in tap["ratios"]["nodrop/upstream"]


@pytest.mark.parametrize("done", [1, 2, 4, 19, 20, 50])
def test_a_killed_run_is_reported_as_far_as_it_went(tmp_path: Path, done: int) -> None:
    raw = make_run(tmp_path) / "raw.jsonl"
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join(lines[:done]) + lines[done][:20])
    directory, summaries = common.write_report(tmp_path)
    assert len(directory.runs) == done
    assert sum(entry["runs"] for entry in summaries.values()) == done
    assert (tmp_path / "plot.svg").exists()


@pytest.mark.parametrize("kept", ["nodrop", "stock"])
def test_a_single_driver_is_reported_without_ratios(tmp_path: Path, kept: str) -> None:
    raw = make_run(tmp_path) / "raw.jsonl"
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join(line for line in lines if f'"variant": "{kept}"' in line))
    _, summaries = common.write_report(tmp_path)
    assert summaries["tap"]["ratios"] == {}
    assert list(summaries["tap"]["variants"]) == [kept]


def test_a_case_cut_off_in_the_middle_is_left_out_of_the_whole(tmp_path: Path) -> None:
    raw = make_run(tmp_path, ("tap",)) / "raw.jsonl"
    raw.write_text("".join(raw.read_text().splitlines(keepends=True)[:-1]))
    _, summaries = common.write_report(tmp_path)
    counts = {entry["lost"]["n"] for entry in summaries["tap"]["variants"].values()}
    assert counts == {PAIRS, PAIRS - 1}


@pytest.mark.parametrize(("lost", "sentences"), [(0, 0), (1, 1)])
def test_one_lost_packet_is_told(tmp_path: Path, lost: int, sentences: int) -> None:
    wrong = common.check(files.load(make_run(tmp_path, nodrop_lost=lost)))
    assert len(wrong) == sentences
    assert all("nodrop lost" in sentence for sentence in wrong)


def test_packets_nobody_counted_are_told(tmp_path: Path) -> None:
    raw = make_run(tmp_path) / "raw.jsonl"
    raw.write_text(raw.read_text().replace('"unaccounted": 0', '"unaccounted": 3', 1))
    (sentence,) = common.check(files.load(tmp_path))
    assert "3 packets" in sentence


def test_without_a_qdisc_nothing_could_be_held(tmp_path: Path) -> None:
    make_run(tmp_path, ("tap",), nodrop_lost=4)
    meta = json.loads((tmp_path / "meta.json").read_text())
    meta["scenarios"]["tap"]["parameters"]["qdisc"] = "noqueue"
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    assert summary.lost_by_nodrop(files.load(tmp_path)) == 0


def test_table_tells_medians_and_ratios(tmp_path: Path) -> None:
    common.write_report(make_run(tmp_path))
    text = (tmp_path / "table.txt").read_text()
    assert "1.20 [1.20, 1.20]" in text
    assert "all cases" in text
    assert "6,000" in text
    markdown = (tmp_path / "table.md").read_text()
    heads = "| case | metric | stock | upstream | upstream / stock | nodrop | nodrop / stock |"
    assert heads in markdown
    assert "| ring 500 | latency under load, p50, ms | 20 |" in markdown


def test_the_table_fits_its_width_uncut(tmp_path: Path) -> None:
    common.write_report(make_run(tmp_path))
    text = (tmp_path / "table.txt").read_text()
    assert "…" not in text
    table_lines = [line for line in text.splitlines() if not line.startswith("Linux")]
    assert max(len(line.rstrip()) for line in table_lines) <= common.MIN_WIDTH


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("senders=1,txqueuelen=500", ["1 sender", "ring 500"]),
        ("senders=2,txqueuelen=1", ["2 senders", "ring 1"]),
        ("offloads=False,flows=1", ["no TSO", "1 flow"]),
        ("payload=44x1472", ["44x1472 bytes"]),
        ("reader=user,reader_cpu=-1,senders=4", ["reader user", "any CPU", "4 senders"]),
        ("qdisc=noqueue,worker_cpu=-1", ["qdisc noqueue", "any CPU"]),
        ("default", ["default"]),
    ],
)
def test_case_words(name: str, words: list[str]) -> None:
    assert rows.case_words(name) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567.8, "1,234,568"), (3, "3"), (0.12345, "0.123"), (99.96, "100")],
)
def test_format_value(value: float, text: str) -> None:
    assert rows.format_value(value) == text


def test_a_missing_variant_leaves_a_dash(tmp_path: Path) -> None:
    directory = files.load(make_run(tmp_path, ("tap",)))
    kept = [run for run in directory.runs if run.variant != "upstream"]
    found = summary.summarise_scenario(directory.scenarios["tap"], kept, directory.meta)
    (part,) = table.sections(directory, {"tap": found})
    assert part.rows[0].cells[1:3] == ("-", "-")


def test_pictures_are_the_same_again(tmp_path: Path) -> None:
    common.write_report(make_run(tmp_path))
    first = [(tmp_path / name).read_bytes() for name in files.PLOT_NAMES]
    common.write_report(tmp_path)
    assert [(tmp_path / name).read_bytes() for name in files.PLOT_NAMES] == first
    assert b"<dc:date>" not in first[0]
    assert len(plot.panels(summary.summarise(files.load(tmp_path)), list(FACTOR))) == 3


@pytest.mark.parametrize(
    ("run", "metrics"),
    [
        ("vpn-rtt", ["retransmits", "goodput_mbit_per_s", "rtt_mean_ms"]),
        ("tcp", ["goodput_mbit_per_s"]),
        ("tap", ["lost", "delivered_pps"]),
    ],
)
def test_what_is_worth_a_panel(run: str, metrics: list[str]) -> None:
    directory = files.load(REPOSITORY / "results" / run)
    drawn = plot.panels(summary.summarise(directory), directory.meta["variants"])
    assert [metric for panel in drawn for metric in panel.metrics] == metrics


@pytest.mark.parametrize("run", ["vhost-qdiscs", "vpn-queue", "tap"])
def test_names_below_the_axis_do_not_overlap(run: str) -> None:
    directory = files.load(REPOSITORY / "results" / run)
    figure = plot.draw(summary.summarise(directory), directory.meta["variants"])
    figure.savefig(io.BytesIO())
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (17, "17"), (7.5, "7.5"), (273022, "273k"), (1500, "1.5k"), (1.2e6, "1.2M")],
)
def test_short_count(value: float, text: str) -> None:
    assert plot.short_count(value) == text
