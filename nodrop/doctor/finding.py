# SPDX-License-Identifier: GPL-2.0-only
"""What a check says, and the list of all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from nodrop.doctor.look import Look


class Severity(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
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
    """

    severity: Severity
    seen: str
    cost: str = ""
    fix: tuple[str, ...] = ()


def ok(seen: str) -> Verdict:
    """Nothing is wrong."""
    return Verdict(Severity.OK, seen)


def skipped(why: str) -> Verdict:
    """It could not be found out."""
    return Verdict(Severity.SKIPPED, why)


def warn(seen: str, cost: str, *fix: str) -> Verdict:
    """It may cost something."""
    return Verdict(Severity.WARN, seen, cost, fix)


def fail(seen: str, cost: str, *fix: str) -> Verdict:
    """It costs packets, or time, now."""
    return Verdict(Severity.FAIL, seen, cost, fix)


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


class Checks:
    """All checks, by id."""

    def __init__(self) -> None:
        self._machine: dict[str, Check] = {}
        self._ring: dict[str, Check] = {}
        self._tunnel: dict[str, Check] = {}

    @property
    def ids(self) -> set[str]:
        """The ids of all checks."""
        return {*self._machine, *self._ring, *self._tunnel}

    def machine(self, name: str) -> Callable[[Check], Check]:
        """Add a check of the machine; a decorator."""
        return lambda check: self._machine.setdefault(name, check)

    def ring(self, name: str) -> Callable[[Check], Check]:
        """Add a check of devices with a reader; a decorator."""
        return lambda check: self._ring.setdefault(name, check)

    def tunnel(self, name: str) -> Callable[[Check], Check]:
        """Add a check of the kernel's own tunnels; a decorator."""
        return lambda check: self._tunnel.setdefault(name, check)

    def run(self, look: Look) -> Iterator[Finding]:
        """Run them: the machine first, then each device."""
        for name, check in self._machine.items():
            if verdict := check(look):
                yield Finding(name, None, verdict)
        for link in look.links:
            for name, check in (self._tunnel if link.now.tunnel else self._ring).items():
                if verdict := check(look, link):
                    yield Finding(name, link.now.label, verdict)


CHECKS = Checks()
