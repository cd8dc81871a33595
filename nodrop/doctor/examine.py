# SPDX-License-Identifier: GPL-2.0-only
"""Runs all checks."""

from __future__ import annotations

from collections.abc import Sequence

# Importing these modules registers their checks.
from nodrop.doctor import delay, driver, kernels, queueing, reader, ring, usage
from nodrop.doctor.finding import MACHINE, RING, TUNNEL, Finding, Severity, Verdict
from nodrop.doctor.look import Look

MODULES = (driver, kernels, ring, queueing, delay, reader, usage)


def examine(look: Look) -> list[Finding]:
    """Return the findings of all checks: of the machine, then of each device."""
    found: list[tuple[str, str | None, Verdict | None]]
    found = [(name, None, check(look)) for name, check in MACHINE.items()]
    found += [
        (name, link.now.label, check(look, link))
        for link in look.links
        for name, check in (TUNNEL if link.now.tunnel else RING).items()
    ]
    return [Finding(name, label, verdict) for name, label, verdict in found if verdict]


def count(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the number of findings of each severity."""
    return {
        str(severity): sum(one.verdict.severity is severity for one in findings)
        for severity in Severity
    }
