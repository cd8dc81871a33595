# SPDX-License-Identifier: GPL-2.0-only
"""What a check says, and the lists of all checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """It may cost something."""
    FAIL = "fail"
    """It costs packets, or time, now."""
    NOTE = "note"
    """Nothing is wrong, but it is worth knowing."""
    SKIPPED = "skipped"
    """It could not be found out."""


@dataclass(frozen=True)
class Verdict:
    """What one check says of one thing.

    Attributes:
        severity: how bad.
        seen: what was seen, a sentence; of SKIPPED: why it could not be looked at.
        cost: what that costs, a sentence; "" when nothing.
        fix: command lines; those that begin with ``#`` are for people.
        numbers: what ``seen`` and ``cost`` are based on, for programs; units as in docs/guide.md.
    """

    severity: Severity
    seen: str
    cost: str = ""
    fix: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def commands(self) -> tuple[str, ...]:
        """The lines of ``fix`` that a shell can run."""
        return tuple(line for line in self.fix if not line.startswith("#"))


def _of(severity: Severity) -> Callable[..., Verdict]:
    """Return what makes a verdict of a severity: of seen, cost, the lines of fix, and numbers."""
    return lambda seen, cost="", *fix, **numbers: Verdict(severity, seen, cost, fix, numbers)


ok, note, warn, fail, skipped = map(
    _of, (Severity.OK, Severity.NOTE, Severity.WARN, Severity.FAIL, Severity.SKIPPED)
)


@dataclass(frozen=True)
class Finding:
    """A verdict and what it is about.

    Attributes:
        id: the check's, stable.
        device: label of the device; None: the machine.
    """

    id: str
    device: str | None
    verdict: Verdict


Check = Callable[..., Verdict | None]
"""Takes the look, and of a device its link; returns None where it does not apply."""


class Checks(dict[str, Check]):
    """Checks by id."""

    def __call__(self, name: str) -> Callable[[Check], Check]:
        """Add a check; a decorator."""
        return lambda check: self.setdefault(name, check)


MACHINE, RING, TUNNEL = Checks(), Checks(), Checks()
"""Checks of the machine, of devices with a reader, and of the kernel's own tunnels."""
