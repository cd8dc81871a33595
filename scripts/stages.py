# SPDX-License-Identifier: GPL-2.0-only
"""Runs commands as stages, each with a time limit, and records their output and results."""

from __future__ import annotations

import ctypes
import fcntl
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON = str(ROOT / ".venv/bin/python")
KINDS = ("passed", "failed", "skipped")
SPARE_S = 45.0
"""A stage's guests and builds are stopped so long before its limit, so it can report, seconds."""
END_S = 10.0
"""Time between a stage's interrupt at its limit and its kill, seconds."""
_PR_SET_PDEATHSIG = 1
_CLOSING = re.compile(r"^=* ?((?:\d+ [a-z ]+(?:, )?)+) in [\d.]+s\b")
_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")


@dataclass(frozen=True)
class Stage:
    """One row of the table.

    Attributes:
        name: also of its JUnit file.
        limit_s: time limit, seconds.
        argv: the command.
        background: it runs beside later stages, with its output in a file of its own.
        needs: a stage that must have passed.
    """

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


def pytest(out: Path, name: str, each_s: int, *words: str) -> tuple[str, ...]:
    """Return the command that runs tests, two at a time.

    Args:
        out: directory for ``name``.xml.
        each_s: time limit of a test, seconds.
        words: paths of tests, and options.
    """
    common = ("-n", "2", "--dist", "worksteal", f"--junitxml={out / name}.xml", "--durations=20")
    return (PYTHON, "-m", "pytest", *common, f"--timeout={each_s}", *words)


class Running:
    """A running stage in a session of its own, which is killed at the end.

    Attributes:
        ended: monotonic time at which its process ended. A thread waits for that, because a
            background stage ends while others are being followed.
    """

    def __init__(self, stage: Stage, env: Mapping[str, str], output: IO[bytes] | int) -> None:
        self.stage = stage
        self.started = time.monotonic()
        end = self.started + stage.limit_s - min(SPARE_S, stage.limit_s / 4)
        self.process = subprocess.Popen(
            # It must not outlive this program, however this ends.
            ["setpriv", "--pdeathsig", "KILL", "--", *stage.argv],
            cwd=ROOT,
            env={**os.environ, **env, "NODROP_DEADLINE": f"{end:.1f}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.ended = math.inf
        self._waiter = threading.Thread(target=self._note_end, daemon=True)
        self._waiter.start()

    def _note_end(self) -> None:
        self.process.wait()
        self.ended = time.monotonic()

    def wait(self) -> Ended:
        """Wait for the end, at most until the limit; then interrupt it, then kill it."""
        outcome = "timeout"
        try:
            self._waiter.join(max(self.started + self.stage.limit_s - time.monotonic(), 0.0))
            if not self._waiter.is_alive():
                outcome = "failed" if self.process.returncode else "passed"
        except KeyboardInterrupt:
            outcome = "interrupted"
        self.stop()
        seconds = min(self.ended, time.monotonic()) - self.started
        return Ended(self.stage.name, outcome, seconds, self.stage.limit_s)

    def stop(self) -> None:
        """Interrupt the stage if it is running, and kill it END_S later."""
        if self._waiter.is_alive():
            self._signal(signal.SIGINT)
            self._waiter.join(END_S)
        self.kill()

    def kill(self) -> None:
        """Kill the stage's process group; a process that hangs in the host's kernel remains."""
        self._signal(signal.SIGKILL)
        self._waiter.join(END_S)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def run(chosen: Sequence[Stage], out: Path, log: IO[bytes]) -> list[Ended]:
    """Run the stages; return their results, in the table's order."""
    running = out / "running"
    running.mkdir()
    env = {
        "NODROP_REPEATS": str(out / "repeated.txt"),
        "NODROP_RUNNING": str(running),
        "PYTHONUNBUFFERED": "1",
        "PY_COLORS": "0",
    }
    background: dict[str, Running] = {}
    ended: dict[str, Ended] = {}

    def join(name: str) -> None:
        ended[name] = background.pop(name).wait()
        text = (out / f"{name}.log").read_bytes()
        show(log, b"\n".join(text.splitlines()[-60:]) + b"\n")

    def begin(stage: Stage) -> None:
        if stage.needs in background:
            join(stage.needs)
        if stage.needs and ended[stage.needs].outcome != "passed":
            return
        show(log, f"--- {stage.name}: {' '.join(stage.argv)}\n".encode())
        if stage.background:
            with (out / f"{stage.name}.log").open("wb") as own:
                background[stage.name] = Running(stage, env, own)
        else:
            ended[stage.name] = follow(stage, env, log)
            for path in running.iterdir():
                show(log, f"test running at the end: {path.read_text()}\n".encode())
                path.unlink()

    try:
        for stage in chosen:
            begin(stage)
            if any(one.outcome == "interrupted" for one in ended.values()):
                for left in background.values():
                    left.stop()
                break
        for name in list(background):
            join(name)
    finally:
        for left in background.values():
            left.kill()
    for stage in chosen:
        ended.setdefault(stage.name, Ended(stage.name, "not run", 0.0, stage.limit_s))
    return [ended[stage.name] for stage in chosen]


def follow(stage: Stage, env: Mapping[str, str], log: IO[bytes]) -> Ended:
    """Run a stage, print its output, count its tests."""
    before = log.tell()
    tee = subprocess.Popen(
        ["tee", "-p", "-a", log.name], stdin=subprocess.PIPE, start_new_session=True
    )
    assert tee.stdin is not None
    try:
        running = Running(stage, env, tee.stdin)
    except OSError as error:
        show(log, f"{error}\n".encode())
        return Ended(stage.name, "failed", 0.0, stage.limit_s)
    finally:
        tee.stdin.close()
    ended = running.wait()
    with suppress(subprocess.TimeoutExpired):  # a child that it left still holds the pipe
        tee.wait(END_S)
    tee.kill()
    log.seek(0, os.SEEK_END)
    ended.counts = counted(Path(log.name).read_bytes()[before:].decode(errors="replace"))
    return ended


def show(log: IO[bytes], data: bytes) -> None:
    """Log, and print unless the pipe's reader has gone."""
    log.write(data)
    log.flush()
    if sys.stdout:
        with suppress(OSError):
            sys.stdout.buffer.write(data)
            sys.stdout.flush()


def counted(text: str) -> Counter[str]:
    """Return the numbers of pytest's closing line; none without such a line."""
    for line in reversed(text.splitlines()):
        if match := _CLOSING.match(line):
            found = {kind: int(number) for number, kind in _COUNT.findall(match[1])}
            found["failed"] = found.get("failed", 0) + found.pop("error", 0)
            return Counter(found)
    return Counter()


def table(ended: Sequence[Ended]) -> str:
    """Return the table of the stages."""
    rows = [f"{'stage':<12} {'outcome':<8} {'seconds':>8} {'limit':>6}  tests"]
    for stage in ended:
        tests = ", ".join(f"{stage.counts[kind]} {kind}" for kind in KINDS if stage.counts[kind])
        times = f"{stage.seconds:8.0f} {stage.limit_s:6.0f}"
        rows.append(f"{stage.name:<12} {stage.outcome:<8} {times}  {tests}")
    return "\n".join(row.rstrip() for row in rows)


def git(*words: str) -> str:
    """Return git's output; "" outside a repository."""
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=END_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def report(ended: Sequence[Ended], seconds: float, out: Path) -> tuple[str, dict[str, Any]]:
    """Write result.json; return the text to print at the end, and the result."""
    passed = all(stage.outcome == "passed" for stage in ended)
    for stage in ended:
        if stage.outcome != "passed" and not stage.counts["failed"]:
            stage.counts["failed"] = 1
    sums = sum((stage.counts for stage in ended), Counter())
    again = (out / "repeated.txt").read_text().splitlines()
    repeated = [line for line in again if line.startswith("A ")]
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
    lines = [table(ended), f"{'all':<12} {result['outcome']:<8} {seconds:8.0f}"]
    lines += [f"repeated: {line}" for line in repeated]
    lines.append(", ".join(f"{sums[kind]} {kind}" for kind in KINDS))
    return "\n".join([*lines, ""]), result


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
