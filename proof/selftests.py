# SPDX-License-Identifier: GPL-2.0-only
"""Run the project's tests in a guest: programs that print KTAP, and KUnit modules."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from lab.guest import BOOT_S, GuestDied, GuestRun, GuestTimeout
from lab.kernel import Artifacts, Kernel
from lab.sources import REPOSITORY
from lab.splats import find_splats, strip_timestamp
from lab.uml import run
from nodrop.errors import NodropError
from proof.batch import MARK

_VERSION = re.compile(r"^(?:KTAP|TAP) version \d+$")
_PLAN = re.compile(r"^1\.\.(\d+)$")
_RESULT = re.compile(r"^(not )?ok (\d+)\s*(?:- )?([^#]*?)\s*(?:#\s*(.*))?$")
_SKIP = re.compile(r"^SKIP\b:?\s*(.*)$", re.IGNORECASE)

PROGRAMS = REPOSITORY / "proof/programs"
SKIPPED = 4
"""Exit status of a skipped test program, as in kselftest."""

TIMEOUT_S = 330.0
"""For one program; the longest takes a minute on two CPUs shared with another guest."""


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass
class CaseResult:
    """One result line, with its diagnostics and its subtests.

    Attributes:
        name: the test's name; its number if it has none.
        outcome: "ok ... # SKIP" counts as skipped.
        reason: the text after the ``#``; may be empty.
        diagnostics: the ``#`` lines before it.
        children: results one level below.
    """

    name: str
    outcome: Outcome
    reason: str = ""
    diagnostics: list[str] = field(default_factory=list)
    children: list[CaseResult] = field(default_factory=list)

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, CaseResult]]:
        """Yield (full name, case) for each case without subtests.

        A group that failed although none of its subtests did is yielded, too.
        """
        path = f"{prefix}{self.name}"
        for child in self.children:
            yield from child.leaves(f"{path}/")
        broken_below = any(child.outcome is Outcome.FAILED for child in self.children)
        if not self.children or (self.outcome is Outcome.FAILED and not broken_below):
            yield path, self


@dataclass
class _Level:
    """The results at one indentation that no result line above them has taken yet."""

    cases: list[CaseResult] = field(default_factory=list)
    planned: int | None = None

    def finish(self) -> list[CaseResult]:
        """Return the cases; append a failed one if their number differs from the plan."""
        if self.planned is not None and self.planned != len(self.cases):
            reason = f"planned {self.planned} results, got {len(self.cases)}"
            return [*self.cases, CaseResult("plan", Outcome.FAILED, reason)]
        return self.cases


def parse_ktap(text: str | Iterable[str]) -> list[CaseResult]:
    """Return the top-level results in a text in KTAP, with their subtests.

    Source: Documentation/dev-tools/ktap.rst of the kernel.

    The text may be a kernel log: timestamps are removed, other lines are ignored. If the number of
    results differs from the plan, a failed case named ``plan`` is added. So a test that died half
    way does not look complete.
    """
    lines = text.splitlines() if isinstance(text, str) else text
    levels: dict[int, _Level] = {}
    diagnostics: list[str] = []
    for raw in lines:
        line = strip_timestamp(raw).rstrip()
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        if _VERSION.match(body):
            diagnostics = []
        elif match := _PLAN.match(body):
            levels.setdefault(indent, _Level()).planned = int(match[1])
        elif match := _RESULT.match(body):
            below = [depth for depth in levels if depth > indent]
            children = [case for depth in sorted(below) for case in levels.pop(depth).finish()]
            case = _case(match, diagnostics, children)
            levels.setdefault(indent, _Level()).cases.append(case)
            diagnostics = []
        elif body.startswith("#"):
            diagnostics.append(body)
    return [case for depth in sorted(levels) for case in levels[depth].finish()]


def _case(match: re.Match[str], diagnostics: list[str], children: list[CaseResult]) -> CaseResult:
    failed, number, name, tail = match.groups()
    outcome = Outcome.FAILED if failed else Outcome.PASSED
    reason = tail or ""
    if (skip := _SKIP.match(reason)) and not failed:
        outcome, reason = Outcome.SKIPPED, skip[1]
    if any(child.outcome is Outcome.FAILED for child in children):
        outcome = Outcome.FAILED
    return CaseResult(name or number, outcome, reason, list(diagnostics), children)


@dataclass(frozen=True)
class Report:
    """The results of one test program or module.

    Attributes:
        name: of the program or module.
        cases: each result with its full name; leaves only.
        complaints: other problems: a bad exit status, splats, no results.
        run: the guest's exit status, output and log.
    """

    name: str
    cases: tuple[tuple[str, CaseResult], ...]
    complaints: tuple[str, ...]
    run: GuestRun

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(name for name, case in self.cases if case.outcome is Outcome.FAILED)

    @property
    def ok(self) -> bool:
        """Whether no case failed and there are no complaints."""
        return not self.failed and not self.complaints


def find_selftests(folder: Path) -> list[Path]:
    """Return the executable files directly in a folder, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and os.access(path, os.X_OK) and not path.name.startswith(".")
    )


def find_cases(program: Path) -> list[str]:
    """Return the names of a program's cases, in the order in which it runs them.

    Those of proof/programs/harness.py: functions case_NAME, with ``@each(VALUE, ...)`` one for each
    value. A program of another kind has none.
    """
    found = []
    for node in ast.parse(program.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("case_"):
            continue
        name = node.name.removeprefix("case_")
        values = [
            ast.literal_eval(value)
            for each in node.decorator_list
            if isinstance(each, ast.Call)
            for value in each.args
        ]
        found += [f"{name}_{value}".replace(" ", "_") for value in values] or [name]
    return found


def run_selftest(
    kernel: Kernel,
    artifacts: Artifacts,
    program: Path,
    out: Path,
    *,
    cases: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_S,
) -> Report:
    """Run one test program in a guest of its own.

    Args:
        cases: the names of those to run; none: all.

    Raises:
        GuestTimeout, GuestDied: the guest ended before the program did.
    """
    result = run(
        kernel,
        [program, *cases],
        out=out,
        artifacts=artifacts,
        timeout=timeout,
        env=env,
    )
    return _report(program.name, result, result.output)


def run_together(
    kernel: Kernel, artifacts: Artifacts, chosen: Mapping[Path, Sequence[str]], out: Path
) -> dict[Path, Report]:
    """Run test programs in one guest; return the reports of those that ended there.

    The caller runs the missing ones in guests of their own. The program during which the guest
    died is among the reports, with a complaint, whatever it would report alone.

    Args:
        chosen: the programs, and the names of the cases to run; none: all.
    """
    programs = list(chosen)
    words = ["::".join((str(program), *cases)) for program, cases in chosen.items()]
    command = [sys.executable, "-m", "proof.batch", *words]
    env = {"PYTHONPATH": str(REPOSITORY)}
    limit = BOOT_S + TIMEOUT_S * len(programs) / 3
    died = None
    try:
        guest = run(kernel, command, out=out, artifacts=artifacts, timeout=limit, env=env)
    except (GuestDied, GuestTimeout) as error:
        guest, died = None, error
    reports = dict(zip(programs, read_batch(programs, out, guest), strict=True))
    ended = {program: report for program, report in reports.items() if report.run.status >= 0}
    first = next((program for program in programs if program not in ended), None)
    if isinstance(died, GuestDied) and first:
        complaints = (f"the guest died: {died.message}\n{died.hint}", *reports[first].complaints)
        ended[first] = replace(reports[first], complaints=complaints)
    return ended


def read_batch(programs: Sequence[Path], out: Path, guest: GuestRun | None) -> list[Report]:
    """Return the report of each program of a batch (``proof.batch``).

    If the guest died, programs without an exit status get a complaint.

    Args:
        out: the guest's LAB_OUT.
        guest: the guest's result; None: it died or timed out.
    """
    logs = split_log(guest.log if guest else "")
    # The log before the first program counts for the first one, too.
    started = logs.pop("", "")
    reports = []
    for program in programs:
        status = out / f"{program.name}.status"
        output = out / f"{program.name}.output"
        text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        log = "\n".join(filter(None, (started, logs.get(program.name, ""))))
        started = ""
        run = GuestRun(
            status=int(status.read_text(encoding="ascii")) if status.exists() else -1,
            log=log,
            output=text,
            splats=find_splats(log.splitlines()),
            seconds=guest.seconds if guest else 0.0,
        )
        reports.append(_report(program.name, run, text))
    return reports


def split_log(log: str) -> dict[str, str]:
    """Return program -> its part of a batch's kernel log; "" -> the part before the first."""
    parts: dict[str, list[str]] = {"": []}
    name = ""
    for line in log.splitlines():
        if MARK in line:
            name = line.rpartition(MARK)[2].strip()
        parts.setdefault(name, []).append(line)
    return {name: "\n".join(lines) for name, lines in parts.items()}


def find_kunit(artifacts: Artifacts) -> list[Path]:
    return sorted(artifacts.modules.glob("nodrop/*_test.ko"))


def run_kunit(
    kernel: Kernel, artifacts: Artifacts, module: Path, out: Path, timeout: float = TIMEOUT_S
) -> Report:
    """Load one KUnit module in a guest and parse its results in the kernel's log.

    Raises:
        GuestTimeout, GuestDied: the guest ended before the module was loaded.
        NodropError: the kernel was built without KUnit.
    """
    kunit = artifacts.modules / "stock/kunit.ko"
    if not kunit.exists():
        raise NodropError(f"{kunit} is missing: the kernel was built without CONFIG_KUNIT=m.")
    script = (
        f"insmod {shlex.quote(str(kunit))} enable=1 autorun=1 && insmod {shlex.quote(str(module))}"
    )
    result = run(kernel, ["sh", "-c", script], out=out, artifacts=artifacts, timeout=timeout)
    return _report(module.name, result, result.log)


def _report(name: str, result: GuestRun, text: str) -> Report:
    """Parse a program's results in a text, and add the complaints."""
    cases = tuple(leaf for case in parse_ktap(text) for leaf in case.leaves())
    complaints = [f"{splat.kind}: {splat.text}" for splat in result.splats]
    failed = any(case.outcome is Outcome.FAILED for _, case in cases)
    if result.status < 0:
        complaints.insert(0, "the guest ended before this program did")
    elif result.status not in (0, SKIPPED) and not failed:
        complaints.append(f"exit status {result.status} although no case failed")
    if not cases:
        complaints.append("no test results in its output")
    return Report(name, cases, tuple(complaints), result)
