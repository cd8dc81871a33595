#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run the gate or a named check as stages, each with a time limit; list the checks' results.

    checks.py gate [--debian]   all that a change must pass (make test). With --debian, as root the
                                first time, also nodrop's packages on one of Debian's kernels
    checks.py run NAME [PART]   a named check (make check-NAME); without PART, all its parts
    checks.py list              the checks, and whether their results hold for these sources
    checks.py help              the checks, for "make help"

checks.toml has the stages and the checks. A stage that fails does not stop those that do not need
it. A check first builds kernels and Debian systems that the cache lacks; the time for that does not
count.

A run writes to out/ci or out/checks/NAME: log.txt (all output), a log and a JUnit file of each
stage, repeated.txt (guests that were booted again) and result.json. The last lines are the table of
the stages and the numbers of tests. Exit status 1 if a stage failed or exceeded its limit. The last
result of a check stays in out/checks/NAME.json.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import DEADLINE, sources
from lab.sources import REPOSITORY as ROOT
from lab.sources import code, git

TABLE = tomllib.loads((ROOT / "scripts/checks.toml").read_text(encoding="utf-8"))
OUT = ROOT / "out"
PROGRAMS = ROOT / ".venv/bin"
PREPARE_S = 1500.0
"""Time limit to build a kernel or a Debian system that the cache lacks, seconds."""
SPARE_S = 45.0
"""A stage's guests and builds are stopped so long before its limit, so it can report, seconds."""
END_S = 10.0
"""Time between a stage's interrupt at its limit and its kill, seconds."""
POLL_S = 0.2
KINDS = ("passed", "failed", "skipped")
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Stage:
    """A command with a time limit, seconds; checks.toml explains the others."""

    name: str
    limit_s: float
    argv: tuple[str, ...]
    background: bool = False
    needs: str = ""


@dataclass
class Ended:
    """The result of a stage.

    Attributes:
        outcome: "passed", "failed", "timeout", "interrupted" or "not run".
        counts: numbers of tests by KINDS.
    """

    name: str
    outcome: str
    seconds: float
    limit_s: float
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Check:
    """A named check; checks.toml explains the fields."""

    name: str
    shows: str
    limit: int
    run: str
    covers: str
    kernels: str
    bootstrap: str = ""


CHECKS = [Check(name, **row) for name, row in TABLE["check"].items()]


def command(out: Path, name: str, run: str, test_limit: int) -> tuple[str, ...]:
    """Return the command of a stage; of pytest, two tests run at a time."""
    program, *words = shlex.split(run)
    if program == "pytest":
        options = ["-n", "2", "--dist", "worksteal", "--durations=20"]
        options += [f"--junitxml={out / name}.xml", f"--timeout={test_limit}"]
        return (str(PROGRAMS / "python"), "-m", "pytest", *options, *words)
    if program == "nodrop-lab":
        return (str(PROGRAMS / "nodrop-lab"), *words)
    return (program, *words)


def gate_stages(out: Path, *, debian: bool) -> list[Stage]:
    rows = [row for row in TABLE["gate"] if debian or not row.get("debian")]
    return [_gate_stage(row, out) for row in rows]


def _gate_stage(row: Mapping[str, Any], out: Path) -> Stage:
    flavour = row.get("flavour") or os.environ.get("LAB_TEST_FLAVOUR") or "debug"
    run = row["run"].format(flavour=flavour)
    argv = command(out, row["name"], run, row.get("test_limit", 0))
    argv = ("env", f"LAB_TEST_FLAVOUR={flavour}", *argv)
    background, needs = row.get("background", False), row.get("needs", "")
    return Stage(row["name"], row["limit"], argv, background, needs)


def check_stages(check: Check, out: Path) -> list[Stage]:
    stages = [Stage("bootstrap", 240, ("scripts/bootstrap", *check.bootstrap.split()))]
    kernels = check.kernels.split()
    for kernel in kernels:
        build = command(out, kernel, f"nodrop-lab build --modules {kernel}", 0)
        stages.append(Stage(f"kernel {kernel}", PREPARE_S, build, needs=stages[-1].name))
    flavour = next((name for name in kernels if not name[0].isdigit()), "debug")
    argv = command(out, check.name, check.run, check.limit)
    debian = " ".join(name for name in kernels if name[0].isdigit())
    argv = ("env", f"LAB_TEST_FLAVOUR={flavour}", f"LAB_TEST_KERNELS={debian}", *argv)
    return [*stages, Stage(check.name, check.limit, argv, needs=stages[-1].name)]


class Running:
    """A running stage in a session of its own, whose output goes to a file.

    Attributes:
        seconds: how long it ran; None while it runs.
    """

    def __init__(self, stage: Stage, env: Mapping[str, str], out: Path) -> None:
        self.stage = stage
        self.seconds: float | None = None
        self._out = out
        self._started = time.monotonic()
        path = out / f"{stage.name}.log"
        deadline = self._started + stage.limit_s - min(SPARE_S, stage.limit_s / 4)
        with path.open("wb") as output:
            self._process = subprocess.Popen(
                # It must not outlive this program, however this ends.
                ["setpriv", "--pdeathsig", "KILL", "--", *stage.argv],
                cwd=ROOT,
                env={**os.environ, **env, DEADLINE: f"{deadline:.1f}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._output = path.open("rb")

    def poll(self) -> bool:
        """Return whether it has ended, and note when."""
        if self.seconds is None and self._process.poll() is not None:
            self.seconds = time.monotonic() - self._started
        return self.seconds is not None

    def follow(self, log: IO[bytes], others: Sequence[Running]) -> Ended:
        """Show its output until it ends or its limit comes, which interrupts it.

        It may have ended long ago, in the background, within its limit.

        Args:
            others: other running stages, whose ends are noted meanwhile.
        """
        outcome = "timeout"
        try:
            while not self.poll() and time.monotonic() < self._started + self.stage.limit_s:
                self._show(log)
                for other in others:
                    other.poll()
                time.sleep(POLL_S)
            if self.seconds is not None and self.seconds < self.stage.limit_s:
                outcome = "failed" if self._process.returncode else "passed"
        except KeyboardInterrupt:
            outcome = "interrupted"
        self.stop()
        self._show(log)
        seconds = self.seconds or time.monotonic() - self._started
        counts = counted(self._out / f"{self.stage.name}.xml")
        return Ended(self.stage.name, outcome, seconds, self.stage.limit_s, counts)

    def stop(self) -> None:
        """Interrupt it if it runs; END_S later kill it and the children that it left.

        A process that hangs in the host's kernel remains.
        """
        for number in (signal.SIGINT, signal.SIGKILL):
            if number == signal.SIGKILL or not self.poll():
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
        self.poll()

    def _show(self, log: IO[bytes]) -> None:
        data = self._output.read()
        if self.stage.background:  # its whole output is in its own log
            data = b"".join(data.splitlines(keepends=True)[-60:])
        show(log, data)


def show(log: IO[bytes], data: bytes) -> None:
    """Log, and print unless the reader of a pipe has gone."""
    log.write(data)
    log.flush()
    if sys.stdout:
        with suppress(OSError):
            sys.stdout.buffer.write(data)
            sys.stdout.flush()


def run(stages: Sequence[Stage], out: Path, log: IO[bytes]) -> list[Ended]:
    tests = out / "running"
    tests.mkdir()
    env = {
        "LAB_REPEATS": str(out / "repeated.txt"),
        "LAB_RUNNING": str(tests),
        "PYTHONUNBUFFERED": "1",
        "PY_COLORS": "0",
    }
    active: dict[str, Running] = {}
    ended: dict[str, Ended] = {}

    def join(name: str) -> None:
        running = active.pop(name)
        try:
            ended[name] = running.follow(log, [*active.values()])
        finally:
            running.stop()

    try:
        for stage in stages:
            if stage.needs in active:
                join(stage.needs)
            if stage.needs and ended[stage.needs].outcome != "passed":
                continue
            show(log, f"--- {stage.name}: {shlex.join(stage.argv)}\n".encode())
            active[stage.name] = Running(stage, env, out)
            if not stage.background:
                join(stage.name)
                for path in tests.iterdir():
                    show(log, f"test running at the end: {path.read_text()}\n".encode())
                    path.unlink()
            if any(result.outcome == "interrupted" for result in ended.values()):
                for running in active.values():
                    running.stop()
                break
        for name in list(active):
            join(name)
    finally:
        for running in active.values():
            running.stop()
    for stage in stages:
        ended.setdefault(stage.name, Ended(stage.name, "not run", 0.0, stage.limit_s))
    return [ended[stage.name] for stage in stages]


def counted(junit: Path) -> Counter[str]:
    """Return the numbers of tests and subtests in a JUnit file; none if there is no such file."""
    try:
        suites = ElementTree.parse(junit).iter("testsuite")
    except (FileNotFoundError, ElementTree.ParseError):
        return Counter()
    counts: Counter[str] = Counter()
    for suite in suites:
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        skipped = int(suite.attrib["skipped"])
        passed = int(suite.attrib["tests"]) - failed - skipped
        counts.update(passed=passed, failed=failed, skipped=skipped)
    return counts


def table(ended: Sequence[Ended]) -> str:
    rows = [f"{'stage':<12} {'outcome':<8} {'seconds':>8} {'limit':>6}  tests"]
    for stage in ended:
        tests = ", ".join(f"{stage.counts[kind]} {kind}" for kind in KINDS if stage.counts[kind])
        times = f"{stage.seconds:8.0f} {stage.limit_s:6.0f}"
        rows.append(f"{stage.name:<12} {stage.outcome:<8} {times}  {tests}")
    return "\n".join(row.rstrip() for row in rows)


def report(ended: Sequence[Ended], seconds: float, out: Path) -> tuple[str, dict[str, Any]]:
    passed = all(stage.outcome == "passed" for stage in ended)
    for stage in ended:
        if stage.outcome != "passed" and not stage.counts["failed"]:
            stage.counts["failed"] = 1
    sums = sum((stage.counts for stage in ended), Counter())
    lines = (out / "repeated.txt").read_text().splitlines()
    repeated = [line for line in lines if line.startswith("A ")]
    state = git("status", "--porcelain", "--branch")
    result = {
        "commit": git("rev-parse", "HEAD"),
        "clean": state.startswith("## ") and "\n" not in state,
        "outcome": "passed" if passed else "failed",
        "seconds": round(seconds, 1),
        "stages": [{**vars(stage), "seconds": round(stage.seconds, 1)} for stage in ended],
        "repeated": repeated,
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    rows = [table(ended), f"{'all':<12} {result['outcome']:<8} {seconds:8.0f}"]
    rows += [f"repeated: {line}" for line in repeated]
    rows.append(", ".join(f"{sums[kind]} {kind}" for kind in KINDS))
    return "\n".join([*rows, ""]), result


@contextmanager
def session(out: Path) -> Iterator[IO[bytes]]:
    """Create a directory for one run and lock it; yield the run's log.

    SIGTERM, SIGHUP and the end of the parent process end the run like Ctrl-C.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = (out.parent / f".{out.name}.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if out.exists():
            shutil.rmtree(out)
        out.mkdir()
    except BlockingIOError:
        sys.exit(f"{out.name}: another run is active in this clone; wait for it or stop it")
    except OSError as error:
        sys.exit(f"{out.name}: cannot create {out}: {error}")
    (out / "repeated.txt").touch()
    with lock, (out / "log.txt").open("ab") as log:
        yield log


def run_session(stages: Sequence[Stage], out: Path) -> tuple[list[Ended], dict[str, Any]]:
    started = time.monotonic()
    with session(out) as log:
        ended = run(stages, out, log)
        text, result = report(ended, time.monotonic() - started, out)
        show(log, b"\n" + text.encode())
    return ended, result


def find(name: str, part: str = "") -> list[Check]:
    """Return a check by its name, or a check's parts."""
    wanted = f"{name}-{part}" if part else name
    exact = [check for check in CHECKS if check.name == wanted]
    return exact or [check for check in CHECKS if check.name.startswith(f"{wanted}-")]


@functools.cache
def content(path: Path) -> bytes:
    """Return a file's code (:func:`lab.sources.code`); empty if it is missing."""
    try:
        return code(path)
    except (OSError, ValueError, SyntaxError):
        return path.read_bytes() if path.is_file() else b""


def covered(check: Check) -> list[str]:
    """Return the files on which a check's outcome depends."""
    covers = [
        path
        for word in check.covers.split()
        for path in (TABLE["paths"][word[1:]].split() if word[0] == "@" else [word])
    ]
    return [*filter(None, git("ls-files", "-z", "--", *covers, ":!results").split("\0"))]


def digest(check: Check) -> str:
    files = [(name, content(ROOT / name)) for name in covered(check)]
    return sources.digest([(f"{check.run} {check.kernels}", b""), *files])[:16]


def run_check(check: Check) -> int:
    out = OUT / "checks" / check.name
    before = digest(check)
    ended, result = run_session(check_stages(check, out), out)
    last = ended[-1]
    if last.outcome in ("passed", "failed", "timeout"):
        saved = {
            "outcome": last.outcome,
            "seconds": round(last.seconds),
            "ended": date.today().isoformat(),
            "commit": result["commit"],
            "digest": before,
        }
        out.with_suffix(".json").write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    return 0 if result["outcome"] == "passed" else 1


def state_of(check: Check) -> tuple[str, dict[str, Any]]:
    """Return the state of a check's last result, and that result.

    "fresh", "stale" (passed with other sources), "failed", or "never run" without a result.
    """
    try:
        path = OUT / "checks" / f"{check.name}.json"
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "never run", {}
    if result["outcome"] != "passed":
        return "failed", result
    return ("fresh" if result["digest"] == digest(check) else "stale"), result


def line(check: Check) -> str:
    state, result = state_of(check)
    seconds = age = ""
    if result:
        seconds = str(result["seconds"])
        age = f"{(date.today() - date.fromisoformat(result['ended'])).days} d"
    return f"{check.name:<18} {state:<9} {seconds:>7} {age:>5}  {check.shows}"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="checks.py")
    commands = parser.add_subparsers(dest="command", required=True)
    gate = commands.add_parser("gate")
    gate.add_argument("--debian", action="store_true")
    runs = commands.add_parser("run")
    runs.add_argument("name")
    runs.add_argument("part", nargs="?", default="")
    commands.add_parser("list")
    commands.add_parser("help")
    given = parser.parse_args(argv)
    if given.command == "gate":
        out = OUT / "ci"
        _, result = run_session(gate_stages(out, debian=given.debian), out)
        return 0 if result["outcome"] == "passed" else 1
    if given.command == "run":
        chosen = find(given.name, given.part)
        if not chosen:
            parser.error(f"no check {given.name} {given.part}; see: make checks")
        return max([run_check(check) for check in chosen])
    if given.command == "list":
        print(f"{'check':<18} {'state':<9} {'seconds':>7} {'age':>5}", *map(line, CHECKS), sep="\n")
    else:
        for check in CHECKS:
            limit = f"at most {check.limit // 60} minutes"
            print(f"  make check-{check.name:<16} {check.shows} ({limit})")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
