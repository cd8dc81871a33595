# SPDX-License-Identifier: GPL-2.0-only
"""Runs all checks."""

from __future__ import annotations

from collections.abc import Sequence

# What these modules define are checks: importing them puts them on the list.
from nodrop.doctor import driver, kernels, queueing, reader, ring, tunnel
from nodrop.doctor.finding import CHECKS, Finding, Severity
from nodrop.doctor.look import Look

MODULES = (driver, kernels, ring, queueing, reader, tunnel)


def examine(look: Look) -> list[Finding]:
    """Return what all checks say: of the machine, then of each device."""
    return list(CHECKS.run(look))


def count(findings: Sequence[Finding]) -> dict[str, int]:
    """Return how many there are of each severity."""
    return {
        str(severity): sum(one.verdict.severity is severity for one in findings)
        for severity in Severity
    }
