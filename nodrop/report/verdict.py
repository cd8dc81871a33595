# SPDX-License-Identifier: GPL-2.0-only
"""Where nodrop wins and where it does not: read off the intervals, never written by hand.

A rate or a time differs when the interval of its paired ratios leaves 1 out. A count, which
may be 0 and so has no ratio, differs when the intervals of both drivers leave a gap. Fewer than
six pairs give no interval of 95 %: then the result says only whether all pairs point one way, and
of fewer than four, which do so by chance too often, nothing. A metric of which neither more nor
less is better is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodrop.bench.scenario import NO_DIRECTION, Metric, Scenario
from nodrop.report.rows import MISSING, case_words, format_ratio, format_value
from nodrop.report.stats import CONFIDENCE

OURS = "nodrop"
TELLING = 0.8
"""Confidence of an interval that tells anything: that of four pairs is 0.875, of three 0.75."""


class Outcome(StrEnum):
    """How nodrop compares; the text is for people."""

    BETTER = "better"
    WORSE = "worse"
    EVEN = "no difference shown"
    ALL_BETTER = "better in all pairs, too few for 95 %"
    ALL_WORSE = "worse in all pairs, too few for 95 %"
    FEW = "too few pairs to tell"


@dataclass(frozen=True)
class Verdict:
    """One comparison.

    Attributes:
        case: its words; empty for all cases together.
        outcome: of nodrop.
        text: the ratio with its interval, or both medians of a count.
    """

    case: str
    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Comparison:
    """One metric of a scenario, against one driver.

    Attributes:
        against: that driver.
        metric: the metric's label and unit.
        cases: a verdict for each case that both drivers ran.
        together: over all cases.
    """

    against: str
    metric: str
    cases: tuple[Verdict, ...]
    together: Verdict

    def of(self, *outcomes: Outcome) -> list[str]:
        """Return the cases with one of these outcomes."""
        return [verdict.case for verdict in self.cases if verdict.outcome in outcomes]


def outcome(low: float, high: float, *, better: str, confidence: float) -> Outcome:
    """Return what an interval around nothing gained (0) tells.

    Args:
        low: its lower end; above 0 is more than the other driver.
        high: its upper end.
        better: ``higher`` or ``lower``.
        confidence: of the interval; below CONFIDENCE it is the range of all pairs, below
            TELLING of too few to tell.
    """
    if confidence < TELLING:
        return Outcome.FEW
    if better == "lower":
        low, high = -high, -low
    enough = confidence >= CONFIDENCE
    if low > 0:
        return Outcome.BETTER if enough else Outcome.ALL_BETTER
    if high < 0:
        return Outcome.WORSE if enough else Outcome.ALL_WORSE
    return Outcome.EVEN if enough else Outcome.FEW


def judge(
    part: Mapping[str, Any], name: str, metric: Metric, against: str, case: str = ""
) -> Verdict | None:
    """Return how nodrop compares in a case or in all, or None if one of both did not run."""
    if not metric.has_ratio:
        ours = part["variants"].get(OURS, {}).get(name)
        theirs = part["variants"].get(against, {}).get(name)
        if not ours or not theirs:
            return None
        found = outcome(
            ours["low"] - theirs["high"],
            ours["high"] - theirs["low"],
            better=metric.better,
            confidence=min(ours["confidence"], theirs["confidence"]),
        )
        text = f"{format_value(ours['median'])} against {format_value(theirs['median'])}"
        return Verdict(case, found, text)
    ratio = part["ratios"].get(f"{OURS}/{against}", {}).get(name)
    if not ratio:
        return None
    found = outcome(
        ratio["low"] - 1,
        ratio["high"] - 1,
        better=metric.better,
        confidence=ratio["confidence"],
    )
    return Verdict(case, found, format_ratio(ratio, _digits(ratio)))


def _digits(ratio: Mapping[str, Any]) -> int:
    """Return how many digits it takes to see that an interval leaves 1 out, if it does."""
    for digits in range(2, 6):
        low, high = round(ratio["low"], digits), round(ratio["high"], digits)
        if (low > 1) == (ratio["low"] > 1) and (high < 1) == (ratio["high"] < 1):
            return digits
    return 2


def comparisons(
    scenario: Scenario, summary: Mapping[str, Any], variants: Sequence[str]
) -> list[Comparison]:
    """Return all comparisons of nodrop that a scenario has, in its metrics' order."""
    found = []
    for against in (name for name in variants if name != OURS):
        for name, metric in scenario.metrics.items():
            if not metric.shown or metric.better == NO_DIRECTION:
                continue
            judged = [
                judge(part, name, metric, against, ", ".join(case_words(case)))
                for case, part in summary["cases"].items()
            ]
            cases = tuple(verdict for verdict in judged if verdict)
            if not cases:
                continue
            together = judge(summary, name, metric, against) or Verdict("", Outcome.FEW, MISSING)
            found.append(Comparison(against, f"{metric.label}, {metric.unit}", cases, together))
    return found


def count(found: Sequence[Comparison], against: str) -> dict[Outcome, int]:
    """Return how many cases came out how, against one driver."""
    outcomes = [verdict.outcome for one in found if one.against == against for verdict in one.cases]
    return {kind: outcomes.count(kind) for kind in Outcome if kind in outcomes}
