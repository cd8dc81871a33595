# SPDX-License-Identifier: GPL-2.0-only
"""What failed while runs were made is kept and told, also when the runs were made again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stand_in import Guest

from nodrop import cli, lab
from nodrop.bench import failures as record
from nodrop.bench import order, scenario, series
from nodrop.guest.plan import Job, Variant
from nodrop.report import failures, files, page, summary, table
from nodrop.report.failures import FAILURES_NAME, Failure, Kind

PAIRS = 2
TAP = scenario.load("tap").with_length(PAIRS, 0.1)
JOBS = order.jobs([TAP], tuple(Variant))
BENCH = ["-q", "bench", "tap", "--pairs", str(PAIRS), "--seconds", "0.1", "--out"]
CONTINUE = ["-q", "bench", "--continue"]
SPLAT = [
    "[   12.1] ==================================================================",
    "[   12.1] BUG: KASAN: use-after-free in nodrop_flow_wake",
]
COMPLAINT = "BUG: KASAN: use-after-free in nodrop_flow_wake."
RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    return Guest.put(tmp_path, monkeypatch)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def fails(number: int, times: int = 1) -> Callable[[Job], str | None]:
    """Let a run of the plan fail so often."""
    left = [times]

    def fail(job: Job) -> str | None:
        if job != JOBS[number] or not left[0]:
            return None
        left[0] -= 1
        return "openvpn lost its peer: Restart pause"

    return fail


def recorded(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / FAILURES_NAME).read_text().splitlines()]


def told(out: Path) -> dict[str, str]:
    """Return what each of the report's files says, its lines joined."""
    texts = {name: (out / name).read_text() for name in ("table.txt", "table.md", "report.html")}
    return {name: " ".join(text.split()) for name, text in texts.items()}


def test_a_run_that_was_made_again_is_told(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.fail = fails(7, times=2)
    for words in (BENCH, CONTINUE):
        assert cli.main([*words, str(out)]) == 1
    (first, second) = recorded(out)
    job = JOBS[7]
    assert (first["kind"], first["variant"], first["pair"]) == ("run", str(job.variant), job.pair)
    assert (first["scenario"], first["case"]) == ("tap", job.case)
    assert first["text"].endswith("openvpn lost its peer: Restart pause")
    assert second["text"] == first["text"]
    assert first["at"]

    # Before it was made again, and after.
    assert cli.main(["report", str(out)]) == 0
    missing = f"2 runs failed and are missing ({job.variant}: 2)."
    assert all(missing in text for text in told(out).values())
    capsys.readouterr()
    assert cli.main([*CONTINUE, str(out)]) == 0
    again = f"2 runs failed and were made again ({job.variant}: 2)."
    assert again in " ".join(capsys.readouterr().out.split())
    assert all(again in text for text in told(out).values())
    assert len(recorded(out)) == 2
    # The numbers are those of the runs that are there.
    assert summary.summarise(files.load(out))["tap"]["runs"] == len(JOBS)


def test_a_splat_is_never_forgotten(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.log[4] = SPLAT
    assert cli.main([*BENCH, str(out)]) == 1
    guest.log.clear()
    for words in (CONTINUE, CONTINUE, ["report"]):
        capsys.readouterr()
        assert cli.main([*words, str(out)]) == 1
        assert COMPLAINT in capsys.readouterr().err
    (line,) = recorded(out)
    assert (line["kind"], line["variant"]) == ("splat", str(JOBS[4].variant))
    assert line["log"].startswith("BUG: KASAN")
    sentence = f"The guest's kernel complained once ({JOBS[4].variant}: 1), first: {COMPLAINT}"
    for name, text in told(out).items():
        assert sentence.replace("'", "&#x27;" if name == "report.html" else "'") in text
    block = '<div class="noise noisy"><p><strong>The guest&#x27;s kernel complained'
    assert block in (out / "report.html").read_text()
    # make bench OUT= asks the same command.
    assert series.run([TAP], out.parent, lambda _: cli.main([*CONTINUE, str(out)])) == {"tap": 1}


@pytest.mark.usefixtures("guest")
def test_a_splat_is_on_the_disk_at_once(guest: Guest, out: Path) -> None:
    def look(_out: Path) -> None:
        assert [line["kind"] for line in recorded(out)] == ["splat"]
        raise KeyboardInterrupt

    guest.log[4] = SPLAT
    guest.stop_after, guest.stop = 5, look
    assert cli.main([*BENCH, str(out)]) == 130
    guest.log.clear()
    guest.stop_after = -1
    assert cli.main([*CONTINUE, str(out)]) == 1


def test_a_splat_that_only_the_whole_log_tells(
    guest: Guest, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **words: Any) -> lab.GuestRun:
        made = guest.run(**words)
        return lab.GuestRun(0, "", "", lab.find_splats(SPLAT), made.seconds)

    monkeypatch.setattr(lab, "run", run)
    assert cli.main([*BENCH, str(out)]) == 1
    assert [line["kind"] for line in recorded(out)] == ["splat"]
    assert cli.main([*CONTINUE, str(out)]) == 1


def test_a_failure_after_the_last_run(
    guest: Guest, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guest.at_end = "'rmmod tun' failed: Module tun is in use"
    assert cli.main([*BENCH, str(out)]) == 1
    capsys.readouterr()
    assert cli.main([*CONTINUE, str(out)]) == 1
    printed, said = capsys.readouterr()
    sentence = "After the last run the guest failed: 'rmmod tun' failed: Module tun is in use."
    assert f"nodrop: {sentence}" in said
    assert sentence in " ".join(printed.split())
    assert [(line["kind"], line["variant"]) for line in recorded(out)] == [("end", None)]


@pytest.mark.parametrize(("stop_after", "kind"), [(0, "run"), (7, "run"), (len(JOBS), "end")])
def test_a_guest_that_dies(stop_after: int, kind: str, guest: Guest, out: Path) -> None:
    def die(_out: Path) -> None:
        raise lab.GuestDied("The guest's kernel ended before the command did.", "Its log")

    guest.stop_after, guest.stop = stop_after, die
    assert cli.main([*BENCH, str(out)]) == 1
    (line,) = recorded(out)
    assert line["kind"] == kind
    assert (line["text"], line["log"]) == (
        "The guest's kernel ended before the command did.",
        "Its log",
    )
    assert line["variant"] == (str(JOBS[stop_after].variant) if kind == "run" else None)


def test_a_guest_that_does_not_come_up(
    guest: Guest, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise lab.GuestDied("The guest's kernel ended before the command did.")

    with monkeypatch.context() as patch:
        patch.setattr(lab, "run", run)
        assert cli.main([*BENCH, str(out)]) == 1
    assert [line["kind"] for line in recorded(out)] == ["boot"]
    assert cli.main([*CONTINUE, str(out)]) == 0
    assert "1 guest failed before the first run: " in told(out)["table.txt"]
    assert len(guest.ran) == len(JOBS)


@pytest.mark.usefixtures("guest")
def test_nothing_failed(out: Path) -> None:
    assert cli.main([*BENCH, str(out)]) == 0
    assert (out / FAILURES_NAME).read_text() == ""
    assert "failed" not in told(out)["table.txt"]
    assert "<dt>Failures</dt><dd>none</dd>" in (out / "report.html").read_text()


def test_older_data_do_not_tell(tmp_path: Path) -> None:
    for name in ("meta.json", "raw.jsonl"):
        shutil.copy(RESULTS / "tap" / name, tmp_path)
    directory = files.load(tmp_path)
    assert directory.failures is None
    sentence = "Whether runs failed and were made again is not recorded."
    summaries = summary.summarise(directory)
    assert sentence in table.note(directory, summaries)
    assert f"<dt>Failures</dt><dd>{sentence}</dd>" in page.page([page.Part(directory, summaries)])


def test_a_record_that_cannot_be_written(
    guest: Guest, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    guest.fail = fails(7)
    monkeypatch.setattr(record, "append", no_space)
    assert cli.main([*BENCH, str(out)]) == 1
    said = capsys.readouterr().err
    assert "openvpn lost its peer" in said
    assert "failures.jsonl could not take this: No space left on device." in said
    assert "pairs are complete" in said


def test_lines_that_a_crash_cut_short_count(tmp_path: Path) -> None:
    failure = Failure(Kind.RUN, "it hung", "tap", "default", "nodrop", 3)
    record.begin(tmp_path)
    record.append(tmp_path, failure)
    with (tmp_path / FAILURES_NAME).open("a") as file:
        file.write('{"kind": "spl')
    record.append(tmp_path, failure)
    found = failures.read(tmp_path)
    assert found
    assert [one.kind for one in found] == [Kind.RUN, Kind.UNREADABLE, Kind.RUN]
    assert failures.lasting(found) == ["1 line of failures.jsonl cannot be read."]
    made = ("tap", "default", "nodrop", 3)
    assert failures.sentences(found, [made])[0] == (
        "2 runs failed and were made again (nodrop: 2)."
    )


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"kind": "colour", "text": ""}', '{"kind": "run"}', "NaN"]
)
def test_lines_that_are_no_failure(line: str, tmp_path: Path) -> None:
    (tmp_path / FAILURES_NAME).write_text(f"{line}\n")
    found = failures.read(tmp_path)
    assert found
    assert found[0].kind is Kind.UNREADABLE


def test_names_and_texts_cannot_do_harm() -> None:
    evil = Failure(Kind.SPLAT, "\x1b[2J" + "x" * 1000, "tap", "default", "\x1b]0;", 0)
    (sentence,) = failures.lasting([evil])
    assert sentence.isprintable()
    assert len(sentence) < 2 * failures.TEXT_CHARS
    assert os.linesep not in sentence
