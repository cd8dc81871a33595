# SPDX-License-Identifier: GPL-2.0-only
"""How far a scenario's values are spread: the first metric of each driver, and of the ratios.

The spread of a case is the range of the middle half of its values, as a share of their median.
Of a driver it is told in the median case and in the worst, which is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodrop.bench.scenario import Scenario
from nodrop.guest.plan import Variant
from nodrop.report import stats
from nodrop.report.files import Run
from nodrop.report.rows import case_words

SPREAD = 0.3
"""More than this makes numbers that are not to be trusted."""
MIN_PAIRS = 4
COMPARED = ("nodrop", "stock")


def middle_half(values: list[float]) -> float:
    """Return the range of the middle half of values, as a share of their median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    middle = stats.median(ordered)
    return (ordered[-1 - quarter] - ordered[quarter]) / middle if middle > 0 else 0.0


def of_scenario(scenario: Scenario, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return the spread of each driver, and of nodrop's ratios to stock's.

    Returns:
        driver or ``nodrop/stock`` -> ``median``, ``worst`` and the ``case`` of the worst; those
        that no case has MIN_PAIRS values of are not there.
    """
    name, metric = next(iter(scenario.metrics.items()))
    values: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        if name in run.metrics:
            of_driver = values.setdefault(run.variant, {})
            of_driver.setdefault(run.case, {})[run.pair] = run.metrics[name]
    wanted: dict[str, dict[str, list[float]]] = {
        str(variant): {
            case: list(pairs.values()) for case, pairs in values.get(variant, {}).items()
        }
        for variant in Variant
    }
    if metric.has_ratio:
        above, below = (values.get(variant, {}) for variant in COMPARED)
        wanted["/".join(COMPARED)] = {
            case: [value / under[pair] for pair, value in pairs.items() if under.get(pair)]
            for case, pairs in above.items()
            if (under := below.get(case))
        }
    found = {}
    for what, cases in wanted.items():
        spreads = {
            case: middle_half(numbers)
            for case, numbers in cases.items()
            if len(numbers) >= MIN_PAIRS
        }
        if spreads:
            worst = max(spreads, key=lambda case: spreads[case])
            found[what] = {
                "median": round(stats.median(list(spreads.values())), 4),
                "worst": round(spreads[worst], 4),
                "case": worst,
            }
    return found


def remark(spreads: Mapping[str, Mapping[str, Any]]) -> str:
    """Return whose values are spread wider than SPREAD in a case; empty: nobody's."""
    return ", ".join(
        f"{_who(what)} over {one['worst']:.0%} ({_words(one['case'])})"
        for what, one in spreads.items()
        if one["worst"] > SPREAD
    )


def sentence(spreads: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how far the values are spread, the worst case last; empty: it is not known."""
    if not spreads:
        return ""
    told = ", ".join(
        f"{_who(what)} {one['median']:.1%}" + (f" (noisy: over {SPREAD:.0%})" * (what == "stock"))
        for what, one in spreads.items()
    )
    what, worst = max(spreads.items(), key=lambda item: float(item[1]["worst"]))
    return (
        f"middle half of a case's values, of their median: {told}; "
        f"at most {worst['worst']:.1%} ({_who(what)}, {_words(worst['case'])})"
    )


def _who(what: str) -> str:
    return "nodrop / stock" if what == "/".join(COMPARED) else what


def _words(case: str) -> str:
    return ", ".join(case_words(case))
