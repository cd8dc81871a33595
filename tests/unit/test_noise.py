# SPDX-License-Identifier: GPL-2.0-only
"""How busy the machine was, and what is made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodrop import load
from nodrop.bench import noise as host_noise
from nodrop.bench import scenario
from nodrop.load import Load
from nodrop.report import files, noise, summary, table
from nodrop.report.files import Run

OLDER = Path(__file__).parent / "samples" / "runs"
TAP = scenario.load("tap")
QUIET = {"wall_s": 1.0, "others_cpu_share": 0.01, "steal_share": 0.0}
NOW = Load(wall_s=100.0, cpus=2, busy_s=50.0, steal_s=5.0, load_1min=0.5)


def proc(place: Path, busy: int, steal: int, processes: dict[int, tuple[int, int]]) -> Path:
    """Make a procfs; processes are number -> (parent, ticks of CPU time)."""
    place.mkdir(exist_ok=True)
    lines = [f"cpu  {busy} 0 0 99 0 0 0 {steal} 0 0", "cpu0 0", "cpu1 0", "intr 1"]
    (place / "stat").write_text("\n".join(lines))
    (place / "loadavg").write_text("1.25 0.5 0.2 1/99 1234\n")
    for number, (parent, ticks) in processes.items():
        (place / str(number)).mkdir(exist_ok=True)
        fields = ["S", str(parent), *["0"] * 9, *(["0"] * 2), "0", str(ticks), "0"]
        (place / str(number) / "stat").write_text(f"{number} (a) b) {' '.join(fields)}")
    return place


def test_load_is_read(tmp_path: Path) -> None:
    found = load.read(proc(tmp_path / "proc", 300, 50, {}))
    ticks = load.TICKS_PER_S
    assert (found.cpus, found.load_1min) == (2, 1.25)
    assert (found.busy_s, found.steal_s) == (300 / ticks, 50 / ticks)


def test_shares_are_of_all_processors() -> None:
    later = replace(NOW, wall_s=102.0, busy_s=51.0, steal_s=5.4, load_1min=0.7)
    assert load.between(NOW, later) == {
        "busy_share": 0.25,
        "steal_share": 0.1,
        "load_1min_before": 0.5,
        "load_1min_after": 0.7,
    }
    assert load.share(1.0, NOW, NOW) == 0.0


def test_own_time_is_that_of_all_descendants(tmp_path: Path) -> None:
    family = {1: (0, 1000), 10: (1, 100), 11: (10, 20), 12: (11, 3), 20: (1, 7000)}
    place = proc(tmp_path / "proc", 0, 0, family)
    assert host_noise.own_cpu_seconds(place, 10) == pytest.approx(123 / load.TICKS_PER_S)


def test_a_line_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = 10.0
    moments = [NOW]
    monkeypatch.setattr(load, "read", lambda _proc: moments[-1])
    monkeypatch.setattr(host_noise, "own_cpu_seconds", lambda _proc: own)
    watched = host_noise.HostNoise(tmp_path)
    watched.begins()
    # In two seconds of two CPUs 3 s were busy, 2.4 of them ours.
    own = 12.4
    moments.append(replace(NOW, wall_s=102.0, busy_s=53.0, steal_s=5.2, load_1min=1.5))
    watched.ended(7)
    (line,) = (tmp_path / "noise.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "run": 7,
        "wall_s": 2.0,
        "others_cpu_share": 0.15,
        "steal_share": 0.05,
        "load_1min_before": 0.5,
        "load_1min_after": 1.5,
    }


BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
NEST = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\n"
WAIT = "print('done', flush=True)\nsys.stdin.read()"


@pytest.mark.parametrize("code", [f"import sys\n{BURN}{WAIT}", f"{NEST}{WAIT}"])
def test_programs_that_were_started_are_own_work(code: str) -> None:
    # The one still runs when it is looked at, what the other has started has ended.
    before = host_noise.own_cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"done\n"
        assert host_noise.own_cpu_seconds() - before >= 0.25
        process.communicate()
    assert host_noise.own_cpu_seconds() - before >= 0.25


def runs(values: list[float], host: dict[str, float] | None = None) -> list[Run]:
    return [
        Run("tap", "senders=1,txqueuelen=500", "stock", pair, {"delivered_pps": value}, host)
        for pair, value in enumerate(values)
    ]


SAME = [100.0] * 10
BUSY = {**QUIET, "others_cpu_share": 0.21}


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        (runs(SAME, QUIET), []),
        (runs(SAME, {**QUIET, "others_cpu_share": 0.05}), []),
        (
            runs(SAME, {**QUIET, "others_cpu_share": 0.06}),
            ["other programs took 6% of the CPUs"],
        ),
        (runs(SAME, {**QUIET, "steal_share": 0.02}), []),
        (runs(SAME, {**QUIET, "steal_share": 0.03}), ["a hypervisor took 3% of the CPUs"]),
        # One of ten is not enough, two are.
        ([*runs(SAME[:1], {**QUIET, "others_cpu_share": 0.3}), *runs(SAME[1:], QUIET)], []),
        (
            [*runs(SAME[:2], BUSY), *runs(SAME[2:], QUIET)],
            ["2 of 10 runs were disturbed"],
        ),
        (runs([100, 100, 100, 80, 109, 109, 109, 109], QUIET), []),
        (runs([60, 100, 100, 100, 100, 100, 100, 140], QUIET), []),
        (
            runs([60, 60, 60, 100, 100, 140, 140, 140], QUIET),
            ["stock's own runs are spread over 80%"],
        ),
    ],
)
def test_rule(made: list[Run], reasons: list[str]) -> None:
    found = noise.of_scenario(TAP, made, {})
    assert found["reasons"] == reasons
    assert found["noisy"] == bool(reasons)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (runs([100.0]), "what else it did is not recorded"),
        (runs(SAME), "what else it did is not recorded"),
        (runs([60, 100, 140], QUIET), "stock ran no case 4 times"),
    ],
)
def test_what_is_not_known_is_not_called_quiet(made: list[Run], why: str) -> None:
    told = {"tap": {"noise": noise.of_scenario(TAP, made, {})}}
    assert told["tap"]["noise"]["noisy"] is None
    assert noise.noisy(told) is None
    words = f"Whether the machine was quiet is not known: {why}."
    assert noise.remarks(told) == words
    assert noise.sentences(told)[0] == words


def test_nothing_is_known() -> None:
    found = noise.of_scenario(TAP, runs([100.0]), {})
    assert (found.pop("reasons"), found.pop("spreads")) == ([], {})
    assert set(found.values()) == {None}


def test_one_that_is_not_known_beside_a_quiet_one() -> None:
    found = {
        name: {"noise": noise.of_scenario(TAP, runs(values, QUIET), {})}
        for name, values in (("short", SAME[:2]), ("long", SAME))
    }
    assert noise.noisy(found) is None
    assert noise.verdict(found).endswith("is not known: short: stock ran no case 4 times.")


def driver(variant: str, case: str, values: list[float]) -> list[Run]:
    return [
        Run("tap", case, variant, pair, {"delivered_pps": value}, QUIET)
        for pair, value in enumerate(values)
    ]


CALM, WIDE = "senders=1,txqueuelen=500", "senders=2,txqueuelen=5"
UNEVEN = [60.0, 60.0, 100.0, 100.0, 140.0, 140.0]


def test_each_drivers_spread_is_told_and_the_widest_named() -> None:
    made = [
        *driver("stock", CALM, SAME),
        *driver("stock", WIDE, SAME),
        *driver("nodrop", CALM, SAME),
        *driver("nodrop", WIDE, UNEVEN),
        *driver("upstream", CALM, SAME[:3]),
    ]
    found = noise.of_scenario(TAP, made, {})
    wide = {"median": 0.4, "worst": 0.8, "case": WIDE}
    assert found["spreads"]["nodrop"] == found["spreads"]["nodrop/stock"] == wide
    assert found["spreads"]["stock"]["worst"] == 0.0
    assert "upstream" not in found["spreads"]
    # The machine is not to blame for what one driver does.
    assert found["noisy"] is False
    told = {"tap": {"noise": found}}
    case = "(2 senders, ring 5)"
    remark = f"Widely spread: nodrop over 80% {case}, nodrop / stock over 80% {case}."
    assert noise.remarks(told) == remark
    assert noise.sentences(told)[0] == f"The machine was quiet. {remark}"
    assert "stock 0.0% (noisy: over 30%), nodrop 40.0%" in noise.sentences(told)[1]
    assert "at most 80.0% (nodrop, 2 senders, ring 5)" in noise.sentences(told)[1]


def test_a_spread_that_is_not_wide_is_no_remark() -> None:
    narrow = driver("nodrop", CALM, [100, 100, 100, 115, 115, 129])
    told = {"tap": {"noise": noise.of_scenario(TAP, [*driver("stock", CALM, SAME), *narrow], {})}}
    assert noise.remarks(told) == ""


def test_steal_below_the_mark_is_told() -> None:
    told = {
        "tap": {"noise": noise.of_scenario(TAP, runs(SAME, {**QUIET, "steal_share": 0.012}), {})}
    }
    assert "a hypervisor took 1.2% of the CPUs (noisy: over 2%)" in noise.sentences(told)[1]
    assert noise.verdict(told) == ""


def test_summaries_of_older_versions_have_no_spreads() -> None:
    found = noise.of_scenario(TAP, runs(SAME, QUIET), {})
    del found["spreads"]
    assert noise.remarks({"tap": {"noise": found}}) == ""


@pytest.mark.parametrize(("name", "noisy"), [("oneflow", False), ("guard", True)])
def test_older_data_are_readable(name: str, noisy: bool) -> None:
    summaries: dict[str, Any] = summary.summarise(files.load(OLDER / name))
    told = summaries[name]["noise"]
    assert told["noisy"] is noisy
    assert told["disturbed_runs"] is None
    assert ("Noisy machine: other programs took 68%" in table.caption(summaries)) is noisy


def test_broken_lines_about_the_host_are_skipped() -> None:
    text = '{"run": 0, "wall_s": 1}\n[]\n{"run": 1, "wa\n{"run": 0, "wall_s": 2}\n{"run": 2}\n'
    text += '{"run": 0, "wall_s": NaN}\n{"run": 0, "wall_s": 1e999}\n{"run": 1.5}\n'
    assert files.parse_noise(text) == {0: {"wall_s": 2.0}, 2: {}}
