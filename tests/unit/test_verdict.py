# SPDX-License-Identifier: GPL-2.0-only
"""Where nodrop wins and where it does not: what intervals, metrics and too few pairs tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodrop.bench.scenario import Metric
from nodrop.report import files, page, rows, summary, verdict
from nodrop.report.verdict import Outcome

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def tap() -> page.Part:
    directory = files.load(RESULTS / "tap")
    return page.Part(directory, summary.summarise(directory))


@pytest.mark.parametrize(
    ("ends", "better", "confidence", "expected"),
    [
        ((0.01, 0.3), "higher", 0.96, Outcome.BETTER),
        ((0.01, 0.3), "lower", 0.96, Outcome.WORSE),
        ((-0.3, -0.01), "higher", 0.96, Outcome.WORSE),
        ((-0.3, -0.01), "lower", 0.96, Outcome.BETTER),
        ((-0.1, 0.1), "higher", 0.96, Outcome.EVEN),
        ((0.0, 0.3), "higher", 0.96, Outcome.EVEN),
        ((0.01, 0.3), "higher", 0.9375, Outcome.ALL_BETTER),
        ((0.01, 0.3), "lower", 0.9375, Outcome.ALL_WORSE),
        ((-0.1, 0.1), "higher", 0.9375, Outcome.FEW),
        ((0.01, 0.3), "higher", 0.875, Outcome.ALL_BETTER),
        # Three pairs, two, and one.
        ((0.01, 0.3), "higher", 0.75, Outcome.FEW),
        ((0.01, 0.3), "lower", 0.5, Outcome.FEW),
        ((0.01, 0.3), "higher", 0.0, Outcome.FEW),
    ],
)
def test_outcome(
    ends: tuple[float, float], better: str, confidence: float, expected: Outcome
) -> None:
    assert verdict.outcome(*ends, better=better, confidence=confidence) is expected


def number(low: float, high: float) -> dict[str, float]:
    return {"median": (low + high) / 2, "low": low, "high": high, "confidence": 0.96}


def test_a_count_needs_a_gap() -> None:
    lost = Metric("lost", "packets", "lower", "sum")

    def judged(ours: tuple[float, float], theirs: tuple[float, float]) -> Outcome:
        both = {"nodrop": {"lost": number(*ours)}, "stock": {"lost": number(*theirs)}}
        found = verdict.judge({"variants": both, "ratios": {}}, "lost", lost, "stock")
        assert found
        return found.outcome

    assert judged((0, 0), (5, 9)) is Outcome.BETTER
    assert judged((6, 9), (0, 5)) is Outcome.WORSE
    assert judged((0, 5), (5, 9)) is Outcome.EVEN
    assert judged((3, 9), (0, 5)) is Outcome.EVEN
    assert judged((0, 0), (0, 0)) is Outcome.EVEN


def test_an_interval_just_below_1_is_shown_with_the_digits_it_takes() -> None:
    speed = Metric("delivered", "packets/s", "higher", "geometric mean")
    ratios = {"nodrop/stock": {"pps": number(0.95, 0.9991)}}
    found = verdict.judge({"variants": {}, "ratios": ratios}, "pps", speed, "stock")
    assert found
    assert found.outcome is Outcome.WORSE
    assert found.text.endswith("[0.950, 0.999]")


def test_what_has_no_direction_is_shown_and_not_judged(tap: page.Part) -> None:
    loaded, found = tap.directory.scenarios["tap"], tap.summaries["tap"]
    metric = replace(loaded.metrics["delivered_pps"], better="none")
    scenario = replace(loaded, metrics={**loaded.metrics, "delivered_pps": metric})
    variants = tap.directory.meta["variants"]
    compared = verdict.comparisons(scenario, found, variants)
    assert {one.metric for one in compared} == {"lost, packets"}
    row = rows.section(scenario, found, variants).rows[0]
    assert row == rows.section(loaded, found, variants).rows[0]
    assert "[" in row.cells[-1]


def test_verdicts_of_a_real_run(tap: page.Part) -> None:
    scenario, found = tap.directory.scenarios["tap"], tap.summaries["tap"]
    compared = verdict.comparisons(scenario, found, tap.directory.meta["variants"])
    assert [(one.against, one.metric) for one in compared] == [
        ("stock", "delivered, packets/s"),
        ("stock", "lost, packets"),
        ("upstream", "delivered, packets/s"),
        ("upstream", "lost, packets"),
    ]
    # What docs/results.md says of it.
    assert compared[0].together.outcome is Outcome.EVEN
    assert not compared[0].of(Outcome.WORSE)
    assert len(compared[1].of(Outcome.BETTER)) == 6
    assert verdict.count(compared, "upstream") == {Outcome.BETTER: 2, Outcome.EVEN: 10}
