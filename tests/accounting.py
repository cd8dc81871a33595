# SPDX-License-Identifier: GPL-2.0-only
"""Turns what a test program in a guest reported into subtests of pytest."""

from __future__ import annotations

import pytest

from nodrop.lab.ktap import Outcome
from nodrop.lab.selftests import Report


def account(report: Report, subtests: pytest.Subtests) -> None:
    """Make each case a subtest; fail when something beside them is wrong."""
    for name, case in report.cases:
        with subtests.test(name):
            if case.outcome is Outcome.SKIPPED:
                pytest.skip(case.reason or "skipped")
            details = "\n".join([f"{name}: {case.reason}", *case.diagnostics])
            assert case.outcome is Outcome.PASSED, details
    if report.complaints or report.failed:
        tail = "\n".join(report.run.output.splitlines()[-60:])
        log = "\n".join(report.run.log.splitlines()[-60:])
        words = "\n".join(report.complaints)
        pytest.fail(f"{report.name}: {words}\n--- output\n{tail}\n--- kernel log\n{log}")
