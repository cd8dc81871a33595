# SPDX-License-Identifier: GPL-2.0-only
"""Whether the machine was quiet enough for the speeds to mean something.

A machine is called noisy when one of these is true of a scenario's runs:

- other programs took more than OTHERS of the CPUs, or a hypervisor more than STEAL;
- in more than DISTURBED_RUNS of the runs both together took more than DISTURBED;
- stock's own values of the first metric are spread wider than SPREAD in the median case.

The spread of a case is the range of the middle half of its values, as a share of their median.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodrop.bench.scenario import Scenario
from nodrop.guest.plan import Variant
from nodrop.report import stats
from nodrop.report.files import Run

OTHERS = 0.05
STEAL = 0.02
DISTURBED = 0.2
DISTURBED_RUNS = 0.1
SPREAD = 0.3
MIN_PAIRS = 4
COMPARED = ("nodrop", "stock")


def weighted(runs: list[Run], name: str) -> float | None:
    """Return the mean over the runs' time; None when no run tells."""
    told = [run.host for run in runs if run.host and {name, "wall_s"} <= run.host.keys()]
    whole = sum(host["wall_s"] for host in told)
    if not whole:
        return None
    return round(sum(host[name] * host["wall_s"] for host in told) / whole, 4)


def disturbed(run: Run) -> bool:
    """Return whether others took much of the CPUs during one run."""
    host = run.host or {}
    return host.get("others_cpu_share", 0.0) + host.get("steal_share", 0.0) > DISTURBED


def middle_half(values: list[float]) -> float:
    """Return the range of the middle half of values, as a share of their median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    middle = stats.median(ordered)
    return (ordered[-1 - quarter] - ordered[quarter]) / middle if middle > 0 else 0.0


def spreads(scenario: Scenario, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return the spread of each driver's first metric, and of nodrop's ratios to stock's.

    Returns:
        driver or ``nodrop/stock`` -> ``median``, ``worst`` and the ``case`` of the worst; those
        that no case has MIN_PAIRS values of are not there.
    """
    name, metric = next(iter(scenario.metrics.items()))
    values: dict[str, dict[str, dict[int, float]]] = {str(variant): {} for variant in Variant}
    for run in runs:
        if name in run.metrics:
            values[run.variant].setdefault(run.case, {})[run.pair] = run.metrics[name]
    if metric.has_ratio:
        above, below = (values[variant] for variant in COMPARED)
        values["/".join(COMPARED)] = {
            case: {pair: value / under[pair] for pair, value in pairs.items() if under.get(pair)}
            for case, pairs in above.items()
            if (under := below.get(case))
        }
    found = {}
    for what, cases in values.items():
        by_case = {
            case: middle_half(list(pairs.values()))
            for case, pairs in cases.items()
            if len(pairs) >= MIN_PAIRS
        }
        if by_case:
            worst = max(by_case, key=lambda case: by_case[case])
            found[what] = {
                "median": round(stats.median(list(by_case.values())), 4),
                "worst": round(by_case[worst], 4),
                "case": worst,
            }
    return found


def of_scenario(scenario: Scenario, runs: list[Run], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a summary that is about noise.

    ``others_cpu_share`` of data that were made before each run told is that of all runs.
    """
    others = weighted(runs, "others_cpu_share")
    if others is None:
        others = meta.get("others_cpu_share")
    steal = weighted(runs, "steal_share")
    told = [run for run in runs if run.host]
    count = sum(map(disturbed, told)) if told else None
    spread = spreads(scenario, runs)
    stock = spread["stock"]["median"] if "stock" in spread else None
    reasons = []
    if others is not None and others > OTHERS:
        reasons.append(f"other programs took {others:.0%} of the CPUs")
    if steal is not None and steal > STEAL:
        reasons.append(f"a hypervisor took {steal:.0%} of the CPUs")
    if count and count > DISTURBED_RUNS * len(told):
        reasons.append(f"{count} of {len(told)} runs were disturbed")
    if stock is not None and stock > SPREAD:
        reasons.append(f"stock's own runs are spread over {stock:.0%}")
    quiet = None if others is None or stock is None else False
    return {
        "noisy": bool(reasons) or quiet,
        "reasons": reasons,
        "others_cpu_share": others,
        "steal_share": steal,
        "disturbed_runs": count,
        "stock_spread": stock,
        "spreads": spread,
    }


def sentence(name: str, summary: Mapping[str, Any]) -> str:
    """Return whether the machine was quiet while a scenario ran, and what that rests on."""
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
