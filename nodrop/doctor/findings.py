# SPDX-License-Identifier: GPL-2.0-only
"""The verdict of a check, and the registries of all checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

from nodrop.enums import StrEnum


class Severity(StrEnum):
    OK = "ok"
    WARN = "warn"
    """A problem that did or may cost packets or time."""
    FAIL = "fail"
    """A problem that costs packets or time now."""
    NOTE = "note"
    """Not a problem, but worth knowing."""
    SKIPPED = "skipped"
    """The check could not run."""


@dataclass(frozen=True)
class Verdict:
    """The result of one check of the machine or of one device.

    Attributes:
        seen: the observation; if SKIPPED, why the check could not run.
        cost: the consequence; "" if there is none.
        fix: command lines; those that begin with ``#`` are comments for the user.
        numbers: the figures behind ``seen`` and ``cost``; units as in docs/guide.md.
    """

    severity: Severity
    seen: str
    cost: str = ""
    fix: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(line for line in self.fix if not line.startswith("#"))


def _verdict(
    severity: Severity, seen: str, cost: str = "", /, *fix: str, **numbers: float
) -> Verdict:
    return Verdict(severity, seen, cost, fix, numbers)


ok = partial(_verdict, Severity.OK)
note = partial(_verdict, Severity.NOTE)
warn = partial(_verdict, Severity.WARN)
fail = partial(_verdict, Severity.FAIL)
skipped = partial(_verdict, Severity.SKIPPED)


@dataclass(frozen=True)
class Finding:
    """A verdict and its subject.

    Attributes:
        id: the check's stable id.
        device: label of the device; None: the machine.
    """

    id: str
    device: str | None
    verdict: Verdict


Check = Callable[..., Optional[Verdict]]
"""A function of the observation and, for a device, its link; returns None if it does not apply."""


class Checks(dict[str, Check]):
    """Checks by id; called with an id, it returns a decorator that registers a check."""

    def __call__(self, name: str) -> Callable[[Check], Check]:
        return lambda check: self.setdefault(name, check)


MACHINE, RING, TUNNEL = Checks(), Checks(), Checks()
"""Checks of the machine, of devices with a ring, and of the kernel's own tunnels."""
