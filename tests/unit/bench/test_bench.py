# SPDX-License-Identifier: GPL-2.0-only
"""The order of runs, and interrupted and continued runs."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pkgutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import stubs

from bench import commands, load, programs, rundir, scenario, session
from bench.guest import instructions, runner
from bench.guest.runner import find_kind
from bench.load import Load
from bench.plan import PLAN_NAME, PROGRESS_MARK, Job, read_plan
from guestlib import vpns
from guestlib.environment import Environment, GuestError, Unsupported
from lab import splats, uml
from lab.cli import main
from lab.guest import GuestDied, GuestRun
from lab.kernel import Artifacts, Kernel
from lab.variant import COMPARED, Variant
from nodrop.errors import NodropError, UsageError, interrupt_on_signals
from nodrop.progress import Progress

NOWHERE = Environment(Path("/out"), Path("/modules"), Path("/bin"))
PAIRS = 2
JOBS = rundir.jobs([scenario.load("tap").with_length(PAIRS, 0.1)], COMPARED)
BENCH = ["-q", "bench", "tap", "--pairs", str(PAIRS), "--seconds", "0.1", "--out"]


class FakeGuest:
    """Makes runs with the guest's own code and invented metrics, without a guest.

    Attributes:
        stop_after: number of runs after which ``stop`` is called: by default an interrupt.
        ran: the runs that were started.
        log: number of runs -> lines of the kernel log that appear then.
    """

    def __init__(self, tmp_path: Path) -> None:
        self.out = tmp_path / "out"
        self.stop_after = -1
        self.stop: Callable[[Path], None] = Mock(side_effect=KeyboardInterrupt)
        self.ran: list[Job] = []
        self.log: dict[int, list[str]] = {}
        self.kernel = Kernel(tmp_path, "7.3.4", tmp_path, tmp_path, "b1", "linux-source-7.3")
        self.artifacts = Artifacts(modules=tmp_path / "modules", bin=tmp_path / "bin")
        stubs.write(tmp_path / "modules/nodrop/tun.ko", "a module")
        stubs.write(tmp_path / "bin/sender", "a program")

    def bench(self, stop_after: int = -1) -> int:
        """Run the command in the directory ``out``, return its status."""
        self.stop_after = stop_after
        return main([*BENCH, str(self.out)])

    def resume(self) -> int:
        """Continue it; ``ran`` then has the runs of this time."""
        self.stop_after = -1
        self.ran.clear()
        return main(["-q", "bench", "--continue", str(self.out)])

    @property
    def results(self) -> list[tuple[str, str, int, str]]:
        runs = rundir.load(self.out).runs
        return [(run.scenario, run.case, run.pair, run.variant) for run in runs]

    def run(self, *_: Any, out: Path, on_line: Callable[[str], None], **__: Any) -> GuestRun:
        """Make the plan's missing runs."""
        log: list[str] = []

        def report(done: int) -> None:
            on_line(PROGRESS_MARK + json.dumps({"done": done}))
            log.extend(self.log.get(done, []))
            if done == self.stop_after:
                self.stop(out)

        environment = Environment(out, self.artifacts.modules, self.artifacts.bin)
        runner.run_all(read_plan(out / PLAN_NAME), environment, report)
        return GuestRun(0, "", "", splats.find_splats(log), 1.0)

    def make(self, job: Job, _environment: Environment) -> dict[str, Any]:
        self.ran.append(job)
        names = {"scenario": job.scenario, "case": job.case, "pair": job.pair}
        metrics = {"delivered_pps": 1000.0 + len(self.ran), "lost": 0, "unaccounted": 0}
        return {**names, "variant": str(job.variant), "metrics": metrics}


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGuest:
    made = FakeGuest(tmp_path)
    monkeypatch.setattr(uml, "run", made.run)
    monkeypatch.setattr(runner, "run_job", made.make)
    monkeypatch.setattr(runner, "Drivers", Mock())
    monkeypatch.setattr(runner, "prepare_system", lambda: None)
    monkeypatch.setattr(session, "ensure_kernel", lambda *_: made.kernel)
    monkeypatch.setattr(session, "ensure_artifacts", lambda *_: made.artifacts)
    # A plot takes a second, and no test here is about it.
    monkeypatch.setattr("bench.report.plot.svg", lambda *_: "")
    return made


@pytest.mark.parametrize("name", scenario.known())
def test_scenarios_fit_their_kinds(name: str) -> None:
    entry = scenario.load(name)
    kind = find_kind(entry.kind)
    for case in entry.cases():
        kind(case.parameters, NOWHERE)
    vpns = itertools.chain(*programs.VPNS.values()) if entry.skips_absent_vpns else ()
    assert {*programs.needed(entry)} <= {*programs.PACKAGES, *vpns}
    if ":" in entry.kernel:
        assert callable(pkgutil.resolve_name(entry.kernel))


SCENARIO = """
[good]
title = "x"
kind = "tap"
seconds = 1
pairs = 1
metrics = ["lost"]
hidden = ["lost"]
[good.parameters]
senders = 1
direct = true
[good.matrix]
txqueuelen = [1, 2]
[derived]
base = "good"
pairs = 3
hidden = []
parameters = { senders = 2 }
[[derived.matrix]]
txqueuelen = [5]
[[derived.matrix]]
direct = [true, false]
"""
METRICS = 'lost = { label = "a", unit = "b", join = "sum" }'


def write_scenarios(folder: Path, scenarios: str, metrics: str = METRICS) -> Path:
    (folder / "bench").mkdir(exist_ok=True)
    (folder / "bench/scenarios.toml").write_text(scenarios)
    (folder / "bench/metrics.toml").write_text(metrics)
    return folder


def test_scenario_takes_over_its_base(tmp_path: Path) -> None:
    derived = scenario.load("derived", write_scenarios(tmp_path, SCENARIO))
    assert (derived.title, derived.kind, derived.pairs) == ("x", "tap", 3)
    assert derived.metrics["lost"].shown
    assert not scenario.load("good", tmp_path).metrics["lost"].shown
    cases = {case.name: case.parameters for case in derived.cases()}
    assert cases == {
        "txqueuelen=5": {"senders": 2, "direct": True, "txqueuelen": 5},
        "direct=True": {"senders": 2, "direct": True},
        "direct=False": {"senders": 2, "direct": False},
    }
    for words, chosen in (
        ("txqueuelen=5", ["txqueuelen=5"]),
        ("direct", ["direct=True", "direct=False"]),
        ("direct,direct=True", ["direct=True"]),
        ("txqueuelen=", []),
    ):
        assert [case.name for case in replace(derived, only=words).cases()] == chosen


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[good]", "[good"),
        ("seconds = 1", "seconds = 0"),
        ("pairs = 1", "pairs = 0"),
        ("pairs = 1", ""),
        ("pairs = 1", "pairs = 1\nmore = 1"),
        ("pairs = 1", 'pairs = 1\nboot = "case"'),
        ('["lost"]', '["gone"]'),
        ('["lost"]', "[]"),
        ("sum", "product"),
        ('unit = "b"', ""),
    ],
)
def test_invalid_scenario(tmp_path: Path, old: str, new: str) -> None:
    assert scenario.load("good", write_scenarios(tmp_path, SCENARIO)).cases()
    with pytest.raises(UsageError):
        scenario.load("none", tmp_path)
    write_scenarios(tmp_path, SCENARIO.replace(old, new), METRICS.replace(old, new))
    with pytest.raises(NodropError):
        scenario.load("good", tmp_path)


@pytest.mark.parametrize("name", ["nullvpn", "tap", "multiflow"])
def test_order(name: str) -> None:
    runs = rundir.jobs([scenario.load(name).with_length(6, 0.1)], COMPARED)
    for start in range(0, len(runs), 3):
        group = runs[start : start + 3]
        assert {run.variant for run in group} == set(COMPARED)
        assert len({(run.case, run.pair) for run in group}) == 1
    # Each case has every order, and every driver is first equally often.
    for case in {run.case for run in runs}:
        of_case = [run.variant for run in runs if run.case == case]
        assert len({tuple(of_case[start : start + 3]) for start in range(0, 18, 3)}) == 6
    assert len(set(Counter(run.variant for run in runs[::3]).values())) == 1
    four = rundir.jobs([scenario.load(name).with_length(4, 0.1)], (*COMPARED, Variant.OLD))
    first = {(run.case, run.variant) for run in four[::4]}
    assert len(first) == 4 * len({run.case for run in four})


SETS = scenario.sets()


def test_sets() -> None:
    assert all(given.keys() <= {"pairs", "seconds"} for s in SETS.values() for given in s.values())
    short, full = (
        [replace(scenario.load(name), **given) for name, given in SETS[chosen].items()]
        for chosen in ("short", "full")
    )
    timed = {name for name in scenario.known() if not scenario.load(name).is_counted}
    # They need programs, or a root, of their own.
    assert {*SETS["full"]} == timed - {"flent", "flent-rrul", "vm", "vpns", "vpns-shaped"}
    # The short set needs one kernel only.
    assert {entry.kind for entry in short} == {e.kind for e in full if e.kernel == "perf"}
    assert {entry.kernel for entry in short} == {"perf"}
    assert all(entry.pairs >= 10 for entry in full)


def test_set_continues(guest: FakeGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed scenario is skipped, an interrupt ends the set."""
    lengths = {name: {"pairs": 1} for name in ("tap", "readers", "oneflow")}
    monkeypatch.setattr(scenario, "sets", lambda: {"short": lengths})
    ends = {"tap": GuestDied("The guest ended.", ""), "readers": KeyboardInterrupt()}

    def stop(out: Path) -> None:
        if out.name in ends:
            raise ends.pop(out.name)

    guest.stop, guest.stop_after = stop, 1
    words = ["-q", "bench", "--set", "short", "--out", str(guest.out)]
    assert main(words) == 130
    assert [job.scenario for job in guest.ran] == ["tap", "readers"]
    ends["oneflow"] = GuestDied("The guest ended.", "")
    assert main(words) == 1
    assert main(words) == 0
    for name in lengths:
        runs = rundir.jobs([scenario.load(name).with_length(1, None)], COMPARED)
        assert rundir.made(guest.out / name, runs) == len(runs)


@pytest.mark.parametrize(
    ("first", "length"),
    [("--pairs 2", {"pairs": 1}), ("", {"pairs": 6}), ("--variants stock", {})],
)
def test_set_refuses_other_results(
    first: str,
    length: dict[str, int],
    guest: FakeGuest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Complete results of another length or other drivers are not those of the set."""
    out = str(guest.out)
    assert main(["-q", "bench", "tap", *first.split(), "--out", f"{out}/tap"]) == 0
    monkeypatch.setattr(scenario, "sets", lambda: {"full": {"tap": length}})
    guest.ran.clear()
    assert main(["-q", "bench", "--set", "full", "--out", out]) == 1
    assert guest.ran == []
    assert "failed: tap" in capsys.readouterr().err


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory with programs; each prints version 1.2.3 and fails."""
    place = tmp_path / "installed"
    texts = {name: f"echo '{name} v1.2.3 of 2026'; exit 1" for name in programs.PACKAGES}
    stubs.programs(place, texts)
    monkeypatch.setattr(programs, "search_path", lambda: str(place))
    return place


def test_the_programs_of_each_vpn_are_known() -> None:
    assert programs.VPNS.keys() == vpns.KINDS.keys()


def test_versions(installed: Path) -> None:
    vpn = scenario.load("vpn")
    assert set(programs.versions([vpn]).values()) == {"1.2.3"}
    (installed / "openvpn").unlink()
    assert programs.versions([vpn])["openvpn"] == ""


def test_absent_vpns_are_left_out(
    guest: FakeGuest, installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["bench", "vpns", "--pairs", "1", "--out", str(out)]) == 0
    assert "left out: wireguard-go-short, boringtun-cli, nebula, tincd" in capsys.readouterr().err
    assert {job.parameters["vpn"] for job in guest.ran} == {"openvpn", "wireguard-go"}
    for path in installed.iterdir():
        path.unlink()
    assert main(["bench", "vpns", "--pairs", "1", "--out", str(tmp_path / "none")]) == 4
    assert "None of openvpn, wireguard-go" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "program", "package"),
    [
        ("vpn-published", "wireguard-go", "wireguard-go"),
        ("instructions", "qemu-system-x86_64", "qemu-system-x86"),
        ("tunnel-instructions", "qemu-system-x86_64", "qemu-system-x86"),
    ],
)
def test_missing_programs(
    name: str,
    program: str,
    package: str,
    guest: FakeGuest,
    installed: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (installed / program).unlink()
    assert main(["-q", "bench", name, "--pairs", "1", "--out", str(guest.out)]) == 4
    assert f"apt-get install {package}" in capsys.readouterr().err
    assert not guest.out.exists()


PLANNED = [(*rundir.group(job), str(job.variant)) for job in JOBS]


@pytest.mark.parametrize("stop_after", [0, 1, 3, 5, len(JOBS) - 1, len(JOBS)])
def test_continue_makes_missing_runs(stop_after: int, guest: FakeGuest) -> None:
    assert guest.bench(stop_after) == 130
    assert rundir.made(guest.out, JOBS) == stop_after
    assert guest.resume() == 0
    # Only an incomplete pair is repeated, as a whole.
    assert guest.ran == JOBS[stop_after // 3 * 3 :]
    assert guest.results == PLANNED
    continued = json.loads((guest.out / "meta.json").read_text())["continued"]
    assert len(continued) == (0 if stop_after == len(JOBS) else 1)
    lines = (guest.out / "noise.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == list(range(len(JOBS)))


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        (Mock(side_effect=OSError(28, "No space left on device")), 1),
        (Mock(side_effect=GuestDied("The guest's kernel ended before the command did.", "")), 1),
        (lambda _out: os.kill(os.getpid(), signal.SIGTERM), 130),
    ],
)
def test_errors_keep_results(stop: Callable[[Path], None], status: int, guest: FakeGuest) -> None:
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    interrupt_on_signals()
    guest.stop = stop
    assert guest.bench(7) == status
    for number, handler in old.items():
        signal.signal(number, handler)
    assert len(guest.results) == 7
    assert guest.resume() == 0


def test_kernel_splat(guest: FakeGuest) -> None:
    guest.log[4] = ["[   12.1] BUG: KASAN: use-after-free in nodrop_flow_wake"]
    assert guest.bench() == 1


@pytest.mark.parametrize(("boot", "kept"), [("run", [4, 6, 10, 12]), ("variant", [0, 6, 6, 12])])
def test_no_run_of_an_incomplete_pair_is_kept(boot: str, kept: list[int]) -> None:
    chosen = replace(scenario.load("tap").with_length(2, 0.1), boot=boot, only="senders=1")
    planned = rundir.jobs([chosen], (Variant.STOCK, Variant.SERIES))
    assert [rundir.in_complete_pairs(planned, made) for made in (5, 6, 11, 12)] == kept


@pytest.mark.parametrize(("boot", "boots"), [("run", 1), ("variant", 4)])
def test_guests_of_a_run(
    boot: str, boots: int, guest: FakeGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = (Variant.STOCK, Variant.SERIES)
    made: list[list[Job]] = []

    def ensure(variant: Variant, _: Progress) -> session.Guest:
        def run(**how: Any) -> GuestRun:
            before = len(guest.ran)
            result = guest.run(**how)
            made.append(guest.ran[before:])
            assert boot != "variant" or {job.variant for job in made[-1]} == {variant}
            return result

        return session.Guest({"release": "7.3", "build_id": f"of {variant}"}, 1, run)

    monkeypatch.setattr(pkgutil, "resolve_name", {"a:kernel": ensure}.__getitem__)
    chosen = replace(
        scenario.load("tap").with_length(2, 0.1), kernel="a:kernel", boot=boot, only="senders=1"
    )
    guest.stop_after = 8
    with pytest.raises(NodropError, match="Interrupted"), Progress() as progress:
        session.measure([chosen], variants, guest.out, progress)
    # Eight runs of twelve: half of the guests made all of theirs.
    assert len(made) == boots // 2
    made.clear()
    guest.stop_after = -1
    with Progress() as progress:
        session.continue_run(guest.out, progress)
    planned = rundir.jobs([chosen], variants)
    first = 6 if boot == "variant" else 8
    if boot == "variant":
        firsts = {job.boot: job.variant for job in planned}
        assert [*firsts.values()] == [*variants, *reversed(variants)]
    assert [job for jobs in made for job in jobs] == planned[first:]
    assert len(made) == (boots + 1) // 2
    assert guest.results == [(*rundir.group(job), str(job.variant)) for job in planned]
    kernel = json.loads((guest.out / "meta.json").read_text())["kernel"]
    assert kernel["build_id"] == "of stock of series"


def test_incomplete_line_is_dropped(guest: FakeGuest) -> None:
    def tear(where: Path) -> None:
        for name in ("raw.jsonl", "noise.jsonl"):
            with (where / name).open("a") as file:
                file.write('{"scenario": "ta')
        raise KeyboardInterrupt

    guest.stop = tear
    assert guest.bench(6) == 130
    assert guest.resume() == 0
    assert guest.results == PLANNED


@pytest.mark.parametrize(
    ("part", "name", "runs"),
    [("kernel", "build_id", 5)]
    + [
        (*of, runs)
        for of in (("source", "digest"), ("machine", "cpu"), ("programs", "tc"))
        for runs in (5, -1)
    ],
)
def test_changed_identity_is_not_continued(
    part: str, name: str, runs: int, guest: FakeGuest
) -> None:
    guest.bench(runs)
    guest.ran.clear()
    meta = json.loads((guest.out / "meta.json").read_text())
    meta[part][name] = "other"
    (guest.out / "meta.json").write_text(json.dumps(meta))
    before = (guest.out / "raw.jsonl").read_bytes()
    assert guest.resume() == 1
    assert guest.ran == []
    assert (guest.out / "raw.jsonl").read_bytes() == before


def test_cannot_continue(guest: FakeGuest) -> None:
    guest.bench(5)
    lines = (guest.out / "raw.jsonl").read_text().splitlines(keepends=True)
    (guest.out / "raw.jsonl").write_text("".join(reversed(lines)))
    assert guest.resume() == 1
    guest.out = Path("/nowhere")
    assert guest.resume() == 1


def test_compressed_results_stay(guest: FakeGuest) -> None:
    guest.bench(5)
    raw = guest.out / "raw.jsonl"
    raw.with_name("raw.jsonl.gz").write_bytes(gzip.compress(raw.read_bytes()))
    raw.unlink()
    before = (guest.out / "meta.json").read_bytes()
    guest.ran.clear()
    assert guest.resume() == 1
    assert guest.bench() == 1
    assert guest.ran == []
    assert (guest.out / "meta.json").read_bytes() == before


def test_demo_is_not_continued(guest: FakeGuest) -> None:
    guest.stop_after = 5
    assert main(["-q", "demo", "--out", str(guest.out)]) == 130
    assert guest.resume() == 1


def test_data_are_never_overwritten(guest: FakeGuest) -> None:
    assert guest.bench() == 0
    guest.ran.clear()
    assert guest.bench() == 1
    assert guest.ran == []


def test_nothing_is_built_for_a_complete_run(
    guest: FakeGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guest.bench() == 0
    monkeypatch.setattr(session, "ensure_kernel", Mock(side_effect=AssertionError))
    assert guest.resume() == 0
    assert guest.ran == []


def test_unsupported_case_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions.Instructions, "run", Mock(side_effect=Unsupported("too old")))
    (job,) = rundir.jobs(
        [replace(scenario.load("instructions"), only="payload=44x1472", pairs=1)], [Variant.STOCK]
    )
    line = runner.run_job(job, NOWHERE)
    assert (line["case"], line["skipped"], line["metrics"]) == ("payload=44x1472", "too old", {})


LOOP = {"loop_instructions": 20_000_000, "loop_ticks": 20_100_000}
ROUND = {"ticks": 2000, "delivered": 20, "idle_ms": 0}


@pytest.mark.parametrize(
    ("loop", "made"),
    [({"loop_ticks": 19_999_999}, {}), ({"loop_ticks": 20_400_001}, {}), ({}, {"idle_ms": 10})],
)
def test_ticks_must_be_instructions(loop: dict[str, int], made: dict[str, int]) -> None:
    rounds = [ROUND, {**ROUND, "ticks": 2400}, {**ROUND, "ticks": 2200}]
    found = instructions.cost(LOOP, rounds)
    assert found["instructions_per_packet"] == pytest.approx(110)
    assert found["spread_percent"] == pytest.approx(100 * 20 / 110)
    with pytest.raises(GuestError):
        instructions.cost(LOOP | loop, [ROUND, ROUND | made])


def test_kernels_without_upstreams_flag() -> None:
    counted = scenario.load("instructions")
    assert session.available(counted) == COMPARED
    assert session.available(replace(counted, kernel="6.1")) == (Variant.STOCK, Variant.NODROP)
    assert Variant.UPSTREAM not in session.available(scenario.load("macvtap"))


@pytest.mark.parametrize(
    "line",
    [
        "instructions --seconds 1",
        "instructions --case nothing",
        "tap --kernel 6.12",
        "--continue x --case tap",
        "--set short --pairs 2",
    ],
)
@pytest.mark.usefixtures("guest")
def test_option_does_not_fit(line: str) -> None:
    assert main(["-q", "bench", *line.split()]) == 2


@pytest.mark.usefixtures("guest")
def test_variants_of_another_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-q", "bench", "tunnel-cycles", "--variants", "stock,nodrop"]) == 4
    assert "It can compare: series." in capsys.readouterr().err
    assert commands.variant_list("nodrop,stock") == (Variant.STOCK, Variant.NODROP)


NOW = Load(wall_s=100.0, cpus=2, busy_s=50.0, steal_s=5.0, load_1min=0.5)


def test_own_cpu_time_of_descendants(tmp_path: Path) -> None:
    family = {1: (0, 1000), 10: (1, 100), 11: (10, 20), 12: (11, 3), 20: (1, 7000)}
    for number, (parent, ticks) in family.items():
        (tmp_path / str(number)).mkdir()
        fields = ["S", str(parent), *["0"] * 9, *(["0"] * 2), "0", str(ticks), "0"]
        (tmp_path / str(number) / "stat").write_text(f"{number} (a) b) {' '.join(fields)}")
    assert load.own_cpu_seconds(tmp_path, 10) == pytest.approx(123 / load.TICKS_PER_S)


def test_host_noise_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, moments = [10.0], [NOW]
    monkeypatch.setattr(load, "read", lambda _proc: moments[-1])
    monkeypatch.setattr(load, "own_cpu_seconds", lambda _proc: own[0])
    watched = load.HostNoise(tmp_path)
    watched.start()
    # In two seconds on two CPUs 3 s were busy, 2.4 of them in this process tree.
    own[0] = 12.4
    moments.append(replace(NOW, wall_s=102.0, busy_s=53.0, steal_s=5.2, load_1min=1.5))
    watched.record(7)
    line = json.loads((tmp_path / "noise.jsonl").read_text())
    assert (line["run"], line["others_cpu_share"], line["steal_share"]) == (7, 0.15, 0.05)
