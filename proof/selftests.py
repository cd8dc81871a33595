# SPDX-License-Identifier: GPL-2.0-only
"""Run the project's tests in a guest: programs that print KTAP, and KUnit modules."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.channels import BOOT_S, GuestDied, GuestRun, GuestTimeout
from lab.kernel import Artifacts, Kernel
from lab.kernel.artifacts import REPOSITORY
from lab.splats import find_splats
from lab.uml import run
from nodrop.errors import NodropError
from proof import ktap
from proof.batch import MARK

SKIPPED = 4
"""Exit status of a skipped test program, as in kselftest."""

TIMEOUT_S = 330.0
"""For one program; the longest takes a minute on two CPUs shared with another guest."""


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
    cases: tuple[tuple[str, ktap.Case], ...]
    complaints: tuple[str, ...]
    run: GuestRun

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the failed cases."""
        return tuple(name for name, case in self.cases if case.outcome is ktap.Outcome.FAILED)

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


def run_selftest(
    kernel: Kernel,
    artifacts: Artifacts,
    program: Path,
    out: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_S,
    cpus: int = 2,
) -> Report:
    """Run one test program in a guest of its own.

    Raises:
        GuestTimeout, GuestDied: the guest ended before the program did.
    """
    result = run(
        kernel, [program], out=out, artifacts=artifacts, cpus=cpus, timeout=timeout, env=env
    )
    return _report(program.name, result, result.output)


def run_together(
    kernel: Kernel, artifacts: Artifacts, programs: Sequence[Path], out: Path
) -> dict[Path, Report]:
    """Run test programs in one guest; return the reports of those that ended there.

    The caller runs the missing ones in guests of their own. The program during which the guest
    died is among the reports, with a complaint, whatever it would report alone.
    """
    command = [sys.executable, "-m", "proof.batch", *map(str, programs)]
    env = {"PYTHONPATH": str(REPOSITORY)}
    limit = BOOT_S + TIMEOUT_S * len(programs) / 4
    died = None
    try:
        whole = run(kernel, command, out=out, artifacts=artifacts, timeout=limit, env=env)
    except (GuestDied, GuestTimeout) as error:
        whole, died = None, error
    reports = dict(zip(programs, read_batch(programs, out, whole), strict=True))
    ended = {program: report for program, report in reports.items() if report.run.status >= 0}
    first = next((program for program in programs if program not in ended), None)
    if isinstance(died, GuestDied) and first:
        words = (f"the guest died: {died.message}\n{died.hint}", *reports[first].complaints)
        ended[first] = replace(reports[first], complaints=words)
    return ended


def read_batch(programs: Sequence[Path], out: Path, whole: GuestRun | None) -> list[Report]:
    """Return the report of each program of a batch (``proof.batch``).

    If the guest died, programs without an exit status get a complaint.

    Args:
        out: the guest's NODROP_OUT.
        whole: the guest's result; None: it died or timed out.
    """
    logs = split_log(whole.log if whole else "")
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
            seconds=whole.seconds if whole else 0.0,
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
    """Return the KUnit modules among the artifacts."""
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
    cases = tuple(leaf for case in ktap.parse(text) for leaf in case.leaves())
    complaints = [f"{splat.kind}: {splat.text}" for splat in result.splats]
    failed = any(case.outcome is ktap.Outcome.FAILED for _, case in cases)
    if result.status < 0:
        complaints.insert(0, "the guest ended before this program did")
    elif result.status not in (0, SKIPPED) and not failed:
        complaints.append(f"exit status {result.status} although no case failed")
    if not cases:
        complaints.append("no test results in its output")
    return Report(name, cases, tuple(complaints), result)
