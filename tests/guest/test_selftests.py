# SPDX-License-Identifier: GPL-2.0-only
"""Runs the programs of tests/selftests and the KUnit modules in guests.

Each result that they report is a subtest here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.kernel import Artifacts, Kernel
from nodrop.lab.ktap import Outcome
from nodrop.lab.selftests import (
    Report,
    find_kunit,
    find_selftests,
    run_kunit,
    run_selftest,
)

SELFTESTS = find_selftests(Path(__file__).parents[1] / "selftests")


def account(report: Report, subtests: pytest.Subtests) -> None:
    for name, case in report.cases:
        with subtests.test(name):
            if case.outcome is Outcome.SKIPPED:
                pytest.skip(case.reason or "skipped")
            details = "\n".join([f"{name}: {case.reason}", *case.diagnostics])
            assert case.outcome is Outcome.PASSED, details
    if report.complaints or report.failed:
        tail = "\n".join(report.run.output.splitlines()[-60:])
        log = "\n".join(report.run.log.partition(" as init process\n")[2].splitlines()[-60:])
        words = "\n".join(report.complaints)
        pytest.fail(f"{report.name}: {words}\n--- output\n{tail}\n--- kernel log\n{log}")


@pytest.mark.parametrize("program", SELFTESTS, ids=lambda path: path.stem)
def test_selftest(
    kernel: Kernel,
    artifacts: Artifacts,
    program: Path,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    account(run_selftest(kernel, artifacts, program, tmp_path), subtests)


def test_kunit(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modules = find_kunit(artifacts)
    if not modules:
        pytest.skip("kmod/ builds no KUnit module")
    for module in modules:
        account(run_kunit(kernel, artifacts, module, tmp_path), subtests)
