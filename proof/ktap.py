# SPDX-License-Identifier: GPL-2.0-only
"""Parse KTAP, the kernel's text format for test results.

Source: Documentation/dev-tools/ktap.rst of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from lab.splats import strip_timestamp

_VERSION = re.compile(r"^(?:KTAP|TAP) version \d+$")
_PLAN = re.compile(r"^1\.\.(\d+)$")
_RESULT = re.compile(r"^(not )?ok (\d+)\s*(?:- )?([^#]*?)\s*(?:#\s*(.*))?$")
_SKIP = re.compile(r"^SKIP\b:?\s*(.*)$", re.IGNORECASE)


class Outcome(Enum):
    """How a test case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass
class Case:
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
    children: list[Case] = field(default_factory=list)

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Case]]:
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

    cases: list[Case] = field(default_factory=list)
    planned: int | None = None

    def finish(self) -> list[Case]:
        """Return the cases; append a failed one if their number differs from the plan."""
        if self.planned is not None and self.planned != len(self.cases):
            reason = f"planned {self.planned} results, got {len(self.cases)}"
            return [*self.cases, Case("plan", Outcome.FAILED, reason)]
        return self.cases


def parse(text: str | Iterable[str]) -> list[Case]:
    """Return the top-level results in a text, with their subtests.

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


def _case(match: re.Match[str], diagnostics: list[str], children: list[Case]) -> Case:
    failed, number, name, tail = match.groups()
    outcome = Outcome.FAILED if failed else Outcome.PASSED
    reason = tail or ""
    if (skip := _SKIP.match(reason)) and not failed:
        outcome, reason = Outcome.SKIPPED, skip[1]
    if any(child.outcome is Outcome.FAILED for child in children):
        outcome = Outcome.FAILED
    return Case(name or number, outcome, reason, list(diagnostics), children)
