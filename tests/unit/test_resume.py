# SPDX-License-Identifier: GPL-2.0-only
"""Runs that are interrupted keep what they have and are taken up again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stand_in import Guest

from nodrop import cli, lab
from nodrop.bench import order, rundir, scenario
from nodrop.errors import NodropError
from nodrop.guest.plan import Variant
from nodrop.kernel import Kernel
from nodrop.report import files
from nodrop.signals import interrupt_on_signals

PAIRS = 2
JOBS = order.jobs([scenario.load("tap").with_length(PAIRS, 0.1)], tuple(Variant))
BENCH = ["-q", "bench", "tap", "--pairs", str(PAIRS), "--seconds", "0.1", "--out"]
CONTINUE = ["-q", "bench", "--continue"]


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    return Guest.put(tmp_path, monkeypatch)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def interrupt(_out: Path) -> None:
    raise KeyboardInterrupt


def full(_out: Path) -> None:
    raise OSError(28, "No space left on device")


def die(_out: Path) -> None:
    raise lab.GuestDied("The guest's kernel ended before the command did.", "Its log")


def results(out: Path) -> list[tuple[str, str, int, str]]:
    return [(run.scenario, run.case, run.pair, run.variant) for run in files.load(out).runs]


PLANNED = [(*rundir.group(job), str(job.variant)) for job in JOBS]


@pytest.mark.parametrize("stop_after", [0, 1, 3, 5, 18, len(JOBS) - 1, len(JOBS)])
def test_what_is_missing_is_made(
    stop_after: int, guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.stop_after, guest.stop = stop_after, interrupt
    assert cli.main([*BENCH, str(out)]) == 130
    printed, told = capsys.readouterr()
    assert printed == ""
    assert f"{stop_after // 3} of {len(JOBS) // 3} pairs are complete" in told
    assert f"nodrop bench --continue {out}" in told
    assert rundir.made(out, JOBS) == stop_after

    guest.stop_after = -1
    guest.ran.clear()
    assert cli.main([*CONTINUE, str(out)]) == 0
    # An incomplete pair is made again, as a whole; nothing else is.
    assert guest.ran == JOBS[stop_after // 3 * 3 :]
    assert results(out) == PLANNED
    made = {path.name for path in out.iterdir()}
    whole = out.with_name("whole")
    assert cli.main([*BENCH, str(whole)]) == 0
    assert made == {path.name for path in whole.iterdir()}


def test_the_report_says_that_it_was_continued(guest: Guest, out: Path) -> None:
    guest.stop_after, guest.stop = 4, interrupt
    cli.main([*BENCH, str(out)])
    guest.stop_after = -1
    assert cli.main([*CONTINUE, str(out)]) == 0
    (entry,) = json.loads((out / "meta.json").read_text())["continued"]
    assert (entry["runs_before"], entry["runs_dropped"]) == (3, 1)
    text = " ".join((out / "table.txt").read_text().split())
    assert f"Interrupted, and continued at {entry['at']}." in text
    summary = json.loads((out / "summary.json").read_text())["scenarios"]["tap"]
    assert summary["continued"] == [entry["at"]]


@pytest.mark.parametrize(
    ("stop", "says"), [(full, "No space left on device"), (die, "kernel ended")]
)
def test_other_ends_keep_the_pairs(
    stop: Callable[[Path], None],
    says: str,
    guest: Guest,
    out: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guest.stop_after, guest.stop = 7, stop
    assert cli.main([*BENCH, str(out)]) == 1
    told = capsys.readouterr().err
    assert says in told
    assert "2 of 12 pairs are complete" in told
    assert "--continue" in told


def test_a_guest_that_cannot_write(
    guest: Guest, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(_number: int) -> None:
        if len(guest.ran) == 5:
            full(out)

    monkeypatch.setattr(os, "fsync", no_space)
    assert cli.main([*BENCH, str(out)]) == 1
    told = capsys.readouterr().err
    assert "raw.jsonl: No space left on device" in told
    assert "1 of 12 pairs are complete" in told


@pytest.fixture
def polite() -> Iterator[None]:
    old = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    interrupt_on_signals()
    yield
    signal.signal(signal.SIGTERM, old[0])
    signal.signal(signal.SIGHUP, old[1])


@pytest.mark.usefixtures("polite")
def test_sigterm(guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guest.stop_after, guest.stop = 6, lambda _: os.kill(os.getpid(), signal.SIGTERM)
    assert cli.main([*BENCH, str(out)]) == 130
    assert "2 of 12 pairs are complete" in capsys.readouterr().err
    assert len(results(out)) == 6


def test_a_torn_line_is_dropped_and_told(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tear(where: Path) -> None:
        for name in ("raw.jsonl", "noise.jsonl"):
            with (where / name).open("a") as file:
                file.write('{"scenario": "ta')
        raise KeyboardInterrupt

    guest.stop_after, guest.stop = 6, tear
    cli.main([*BENCH, str(out)])
    capsys.readouterr()
    assert cli.main(["report", str(out)]) == 0
    assert "raw.jsonl is unfinished and left out" in capsys.readouterr().err
    guest.stop_after = -1
    assert cli.main([*CONTINUE, str(out)]) == 0
    assert "unfinished" not in capsys.readouterr().err
    assert results(out) == PLANNED
    lines = (out / "noise.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == list(range(len(JOBS)))


def test_what_the_host_did_goes_with_the_runs(guest: Guest, out: Path) -> None:
    guest.stop_after, guest.stop = 5, interrupt
    cli.main([*BENCH, str(out)])
    guest.stop_after = 3
    assert cli.main([*CONTINUE, str(out)]) == 130
    # Runs 3 and 4 are to be made again: what was told of them is told of no others.
    assert sorted(files.parse_noise((out / "noise.jsonl").read_text())) == [0, 1, 2]
    guest.stop_after = -1
    assert cli.main([*CONTINUE, str(out)]) == 0
    lines = (out / "noise.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == list(range(len(JOBS)))


def _kernel(guest: Guest) -> None:
    guest.kernel = Kernel(Path(), "7.3.5", Path(), Path(), "b2", "linux-source-7.3")


def _module(guest: Guest) -> None:
    (guest.artifacts.modules / "nodrop/tun.ko").write_text("another")


def _new_module(guest: Guest) -> None:
    (guest.artifacts.modules / "nodrop/tap.ko").write_text("another")


def _program(guest: Guest) -> None:
    (guest.artifacts.bin / "sender").write_text("another")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_kernel, "kernel build_id: it was b1, now it is b2"),
        (_module, "modules nodrop/tun.ko: it was "),
        (_new_module, "modules nodrop/tap.ko: it was unknown, now it is "),
        (_program, "programs sender: it was "),
    ],
)
def test_what_is_not_the_same_is_not_continued(
    change: Callable[[Guest], None],
    says: str,
    guest: Guest,
    out: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    guest.stop_after, guest.stop = 5, interrupt
    cli.main([*BENCH, str(out)])
    before = (out / "raw.jsonl").read_bytes(), (out / "meta.json").read_bytes()
    guest.ran.clear()
    change(guest)
    assert cli.main([*CONTINUE, str(out)]) == 1
    assert says in capsys.readouterr().err
    assert guest.ran == []
    assert before == ((out / "raw.jsonl").read_bytes(), (out / "meta.json").read_bytes())


@pytest.mark.parametrize(
    ("part", "name", "says"),
    [
        ("machine", "id", "machine id: it was other"),
        ("machine", "cpus", "machine cpus: it was other"),
        ("machine", "host_kernel", "machine host_kernel: it was other"),
        ("nodrop", "", "nodrop: it was other"),
        ("guest", "", "guest: it was other"),
    ],
)
def test_another_machine_or_version(
    part: str, name: str, says: str, guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.stop_after, guest.stop = 5, interrupt
    cli.main([*BENCH, str(out)])
    meta = json.loads((out / "meta.json").read_text())
    if name:
        meta["identity"][part][name] = "other"
    else:
        meta["identity"][part] = "other"
    (out / "meta.json").write_text(json.dumps(meta))
    assert cli.main([*CONTINUE, str(out)]) == 1
    assert says in capsys.readouterr().err


def test_data_that_do_not_follow_the_plan(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.stop_after, guest.stop = 5, interrupt
    cli.main([*BENCH, str(out)])
    lines = (out / "raw.jsonl").read_text().splitlines(keepends=True)
    (out / "raw.jsonl").write_text("".join(reversed(lines)))
    assert cli.main([*CONTINUE, str(out)]) == 1
    assert "do not follow the plan" in capsys.readouterr().err


def test_a_whole_run_is_not_made_again(guest: Guest, out: Path) -> None:
    cli.main([*BENCH, str(out)])
    guest.ran.clear()
    (out / "table.txt").unlink()
    _kernel(guest)  # nothing is measured, so it does not matter
    assert cli.main([*CONTINUE, str(out)]) == 0
    assert guest.ran == []
    assert (out / "table.txt").exists()


@pytest.mark.parametrize(
    "words",
    [["tap"], ["--pairs", "2"], ["--seconds", "1"], ["--variants", "stock"], ["--out", "x"]],
)
def test_it_takes_nothing_else(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--continue", "somewhere", *words]) == 2
    assert "settled all else" in capsys.readouterr().err


def test_older_results_and_other_directories(capsys: pytest.CaptureFixture[str]) -> None:
    older = Path(__file__).parent / "samples" / "runs" / "oneflow"
    assert cli.main([*CONTINUE, str(older)]) == 1
    assert "Another version of nodrop has made it" in capsys.readouterr().err
    assert cli.main([*CONTINUE, "/nowhere"]) == 1
    assert "not the directory of a run" in capsys.readouterr().err


def test_two_cannot_measure_into_one_directory(out: Path) -> None:
    with (
        rundir.locked(out),
        pytest.raises(NodropError, match="Another nodrop"),
        rundir.locked(out),
    ):
        pass
    with rundir.locked(out):
        pass


def test_an_interrupted_demo_is_started_again(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.stop_after, guest.stop = 5, interrupt
    assert cli.main(["-q", "demo", "--out", str(out)]) == 130
    told = capsys.readouterr().err
    assert "pairs are complete" in told
    assert "--continue" not in told
    assert cli.main([*CONTINUE, str(out)]) == 1
    assert "Start it again" in capsys.readouterr().err
