# SPDX-License-Identifier: GPL-2.0-only
"""Turns the results of a test program in a guest into those of pytest."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from proof.selftests import CaseResult, Outcome, Report

SKIPS = (
    # program, flavour of the kernel, prefix of the reason
    ("qemu.py", "*", "there is no qemu-system-x86_64"),
    ("cmd_drops.py", "*", "no bpftrace, or the kernel has no types"),
    # There, nodrop's tun and vhost_net need each other.
    ("vhost_net.py", "builtin", "beside a built-in tun"),
    ("cmd_status.py", "builtin", "beside a built-in tun"),
    # Only the KASAN kernel injects faults.
    ("fault_*", "debug", "this kernel injects no faults"),
    ("fault_*", "kcsan*", "this kernel injects no faults"),
)
"""Which cases may be skipped, and why. Any other skip is a failure."""


def may_skip(program: str, flavour: str, reason: str) -> bool:
    return any(
        fnmatchcase(program, programs) and fnmatchcase(flavour, flavours) and reason.startswith(why)
        for programs, flavours, why in SKIPS
    )


def check_case(report: Report, name: str, case: CaseResult, flavour: str | None) -> None:
    """Fail or skip the test as a case did; flavour: as for account()."""
    if case.outcome is Outcome.SKIPPED:
        known = flavour is None or may_skip(report.name, flavour, case.reason)
        assert known, f"{name} is skipped, but SKIPS does not allow it: {case.reason}"
        pytest.skip(case.reason or "skipped")
    details = "\n".join([f"{name}: {case.reason}", *case.diagnostics])
    assert case.outcome is Outcome.PASSED, details


def check_report(report: Report) -> None:
    """Fail the test if anything but a case is wrong."""
    if report.complaints:
        tail = "\n".join(report.run.output.splitlines()[-60:])
        log = "\n".join(report.run.log.splitlines()[-60:])
        words = "\n".join(report.complaints)
        pytest.fail(f"{report.name}: {words}\n--- output\n{tail}\n--- kernel log\n{log}")


def account(report: Report, subtests: pytest.Subtests, flavour: str | None = None) -> None:
    """Make each case a subtest; fail if anything else is wrong.

    Args:
        report: the program's results.
        subtests: pytest's fixture.
        flavour: of the kernel; None: allow any skip.
    """
    for name, case in report.cases:
        with subtests.test(name):
            check_case(report, name, case, flavour)
    check_report(report)
