# SPDX-License-Identifier: GPL-2.0-only
"""Judges whether the machine was quiet enough for its results.

A machine is called noisy if, in a scenario's runs,

- other programs took more than OTHERS of the CPUs, or a hypervisor more than STEAL, or
- stock's values of the first metric have a spread above SPREAD in the median case.

The spread of a case is the interquartile range of its values, as a share of their median.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from bench.report.files import Run
from bench.scenario import Scenario
from lab.variant import Variant

OTHERS = 0.05
STEAL = 0.02
SPREAD = 0.3
MIN_PAIRS = 4


def weighted(runs: list[Run], name: str) -> float | None:
    """Return the mean over the runs' time; None if no run recorded it."""
    recorded = [run.host for run in runs if run.host and {name, "wall_s"} <= run.host.keys()]
    total_s = sum(host["wall_s"] for host in recorded)
    if not total_s:
        return None
    return round(sum(host[name] * host["wall_s"] for host in recorded) / total_s, 4)


def middle_half(values: list[float]) -> float:
    """Return the range of the middle half of values, as a share of their median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    middle = median(ordered)
    return (ordered[-1 - quarter] - ordered[quarter]) / middle if middle > 0 else 0.0


def stock_spread(scenario: Scenario, runs: Iterable[Run]) -> float | None:
    """Return the spread of stock's first metric in the median case.

    None: no case has MIN_PAIRS values of it.
    """
    name = next(iter(scenario.metrics))
    values: dict[str, list[float]] = {}
    for run in runs:
        if run.variant == Variant.STOCK and name in run.metrics:
            values.setdefault(run.case, []).append(run.metrics[name])
    found = [middle_half(of_case) for of_case in values.values() if len(of_case) >= MIN_PAIRS]
    return round(median(found), 4) if found else None


def of_scenario(scenario: Scenario, runs: list[Run]) -> dict[str, Any]:
    """Return a summary's part about noise."""
    others = weighted(runs, "others_cpu_share")
    steal = weighted(runs, "steal_share")
    stock = stock_spread(scenario, runs)
    reasons = []
    if others is not None and others > OTHERS:
        reasons.append(f"other programs took {others:.0%} of the CPUs")
    if steal is not None and steal > STEAL:
        reasons.append(f"a hypervisor took {steal:.0%} of the CPUs")
    if stock is not None and stock > SPREAD:
        reasons.append(f"stock's own runs are spread over {stock:.0%}")
    quiet = None if others is None or stock is None else False
    return {
        "noisy": bool(reasons) or quiet,
        "reasons": reasons,
        "others_cpu_share": others,
        "steal_share": steal,
        "stock_spread": stock,
    }


def sentence(name: str, summary: Mapping[str, Any]) -> str:
    """Return whether the machine was quiet during a scenario, with the measured shares."""
    one = summary["noise"]
    state = {True: "noisy", False: "quiet", None: "perhaps noisy, too little is recorded"}
    parts = [
        f"{who} {'unknown' if share is None else f'{share:.1%}'} (noisy: over {mark:.0%})"
        for who, share, mark in (
            ("others' CPU time", one["others_cpu_share"], OTHERS),
            ("a hypervisor's", one["steal_share"], STEAL),
            ("spread of stock's runs", one["stock_spread"], SPREAD),
        )
    ]
    reasons = f" ({', '.join(one['reasons'])})" if one["reasons"] else ""
    return f"{name}: the machine was {state[one['noisy']]}{reasons}; {', '.join(parts)}."
