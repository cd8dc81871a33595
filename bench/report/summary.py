# SPDX-License-Identifier: GPL-2.0-only
"""Makes the summary of a run: medians, intervals, paired ratios.

Layout of one scenario (``nodrop-lab -j bench SCENARIO`` prints this object)::

    scenario, title, kernel, machine, started, source, runs, pairs, seconds
    continued -> [when an interrupted run was continued]
    noise -> {noisy, reasons, ...}, see :func:`noise`
    variants -> stock|upstream|... -> metric -> {median, low, high, n, confidence}
    ratios   -> nodrop/stock|...      -> metric -> the same
    joins    -> metric -> "geometric mean" | "sum" | "mean"
    cases    -> case -> {parameters, variants, ratios}

A ratio compares two runs of one pair, which were made one after the other. The median is taken of
the ratios; it is not a ratio of medians. Pairs whose divisor is 0 have no ratio.

The outer ``variants`` and ``ratios`` are about all cases together: ``joins`` says how the cases of
each pair become one number, and the median is taken over the pairs. More cases are not more pairs,
so they make no interval narrower.

``pairs`` is the smallest number of complete pairs of a case, with a run of each variant. A case
that has no run yet, because of an interruption, is not among ``cases``.

A machine is called noisy if, in a scenario's runs,

- other programs took more than OTHERS of the CPUs, or a hypervisor more than STEAL, or
- stock's values of the first metric have a spread
  above SPREAD in the median case.

The spread of a case is the interquartile range of its values, as a share of their median.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from bench.rundir import Run, RunDirectory
from bench.scenario import Metric, Scenario
from lab.variant import Variant

CONFIDENCE = 0.95
OTHERS = 0.05
STEAL = 0.02
SPREAD = 0.3
MIN_PAIRS = 4
RATIOS = (
    *(("nodrop", "stock"), ("upstream", "stock"), ("nodrop", "upstream")),
    *(("old", "stock"), ("nodrop", "old"), ("series", "stock"), ("series", "nodrop")),
)

Series = dict[str, dict[int, float]]
"""Variant -> pair -> value, of one metric."""


def coverage(n: int, rank: int) -> float:
    """Return the probability that the median lies within the ``rank``-th of both ends.

    The number of values below the true median is binomial(n, 1/2) for any distribution. The
    interval from the rank-th smallest to the rank-th largest value misses the median only if
    fewer than ``rank`` values lie on one side.
    """
    outside: int = sum(math.comb(n, k) for k in range(rank))
    return 1.0 - 2.0 * outside / float(2**n)


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return the median with the narrowest symmetric order-statistic interval.

    ``confidence`` is the probability that such an interval contains the true median. It is at least
    CONFIDENCE, except for samples of less than six: for those, no such interval exists, and
    ``low`` and ``high`` are their range.

    Raises:
        ValueError: there are no values.
    """
    ordered = sorted(values)
    n = len(ordered)
    middle = median(ordered)
    rank = 1
    while rank + 1 <= n // 2 and coverage(n, rank + 1) >= CONFIDENCE:
        rank += 1
    return {
        "median": middle,
        "low": ordered[rank - 1],
        "high": ordered[n - rank],
        "n": n,
        "confidence": round(max(coverage(n, rank), 0.0), 4),
    }


def join(values: Sequence[float], how: str) -> float:
    """Combine numbers by ``sum``, ``mean`` or ``geometric mean`` (0 if one of them is 0)."""
    if how == "geometric mean":
        return geometric_mean(values) if all(values) else 0.0
    return math.fsum(values) / (len(values) if how == "mean" else 1)


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
    spreads = [middle_half(of_case) for of_case in values.values() if len(of_case) >= MIN_PAIRS]
    return round(median(spreads), 4) if spreads else None


def disturbed(runs: Iterable[Run]) -> int:
    """Return how many runs had more than OTHERS or STEAL; the mean of all may still be below."""
    hosts = [run.host for run in runs if run.host]
    limits = {"others_cpu_share": OTHERS, "steal_share": STEAL}
    return sum(any(host.get(name, 0) > most for name, most in limits.items()) for host in hosts)


def noise(scenario: Scenario, runs: list[Run]) -> dict[str, Any]:
    if scenario.is_counted:
        shares = dict.fromkeys(("others_cpu_share", "steal_share", "stock_spread"))
        return {"noisy": False, "reasons": [], "disturbed_runs": 0, **shares}
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
    has_stock = any(run.variant == Variant.STOCK for run in runs)
    quiet = None if others is None or (has_stock and stock is None) else False
    return {
        "noisy": bool(reasons) or quiet,
        "reasons": reasons,
        "disturbed_runs": disturbed(runs),
        "others_cpu_share": others,
        "steal_share": steal,
        "stock_spread": stock,
    }


def series(runs: Iterable[Run], metric: str) -> Series:
    """Return a metric's values; runs that lack it are left out."""
    values: Series = {}
    for run in runs:
        if metric in run.metrics:
            values.setdefault(run.variant, {})[run.pair] = run.metrics[metric]
    return values


def joined(by_case: list[Series], how: str) -> Series:
    """Join the cases of each pair; skip pairs that lack a case."""
    result: Series = {}
    # In the order of the data, so the output is reproducible.
    for variant in dict.fromkeys(variant for case in by_case for variant in case):
        values = [case.get(variant, {}) for case in by_case]
        complete = set.intersection(*(set(case) for case in values))
        result[variant] = {
            pair: join([case[pair] for case in values], how) for pair in sorted(complete)
        }
    return result


def ratio(values: Series, above: str, below: str) -> list[float]:
    """Return the ratio of two variants for each pair that has both."""
    top, bottom = values.get(above, {}), values.get(below, {})
    return [top[pair] / bottom[pair] for pair in sorted(top) if bottom.get(pair)]


def _variants(all_series: Mapping[str, Series]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for metric, by_variant in all_series.items():
        for variant, values in by_variant.items():
            if values:
                result.setdefault(variant, {})[metric] = interval(list(values.values()))
    return result


def _ratios(all_series: Mapping[str, Series]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for above, below in RATIOS:
        for metric, values in all_series.items():
            if numbers := ratio(values, above, below):
                entry = result.setdefault(f"{above}/{below}", {})
                entry[metric] = interval(numbers)
    return result


def _metric_names(runs: Iterable[Run], metrics: Mapping[str, Metric]) -> list[str]:
    """Return the declared metrics first, then all others in the results."""
    return list(dict.fromkeys([*metrics, *(name for run in runs for name in run.metrics)]))


def complete_pairs(runs: Iterable[Run], variants: Iterable[str]) -> int:
    """Return the smallest number of complete pairs of a case, with a run of each variant."""
    compared = set(variants)
    by_case: dict[str, dict[int, set[str]]] = {}
    for run in runs:
        by_case.setdefault(run.case, {}).setdefault(run.pair, set()).add(run.variant)
    counts = (sum(made >= compared for made in pairs.values()) for pairs in by_case.values())
    return min(counts, default=0)


def summarise_scenario(
    scenario: Scenario, runs: list[Run], meta: Mapping[str, Any]
) -> dict[str, Any]:
    cases: dict[str, Any] = {}
    for case in scenario.cases():
        of_case = [run for run in runs if run.case == case.name]
        if not of_case:
            continue
        names = _metric_names(of_case, scenario.metrics)
        all_series = {name: series(of_case, name) for name in names}
        declared = {name: all_series[name] for name in scenario.metrics}
        cases[case.name] = {
            "parameters": dict(case.parameters),
            "variants": _variants(all_series),
            "ratios": _ratios(declared),
        }
    together = {
        name: joined(
            [series([run for run in runs if run.case == case], name) for case in cases], metric.join
        )
        for name, metric in scenario.metrics.items()
    }
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "kernel": meta["kernel"],
        "machine": meta["machine"],
        "started": meta["started"],
        "source": meta["source"],
        "runs": len(runs),
        "pairs": complete_pairs(runs, meta["variants"]),
        "noise": noise(scenario, runs),
        "continued": meta["continued"],
        "seconds": scenario.seconds,
        "joins": {name: metric.join for name, metric in scenario.metrics.items()},
        "variants": _variants(together),
        "ratios": _ratios(together),
        "cases": cases,
    }


def summarise(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    summaries = {}
    for name, scenario in directory.scenarios.items():
        runs = [run for run in directory.runs if run.scenario == name]
        if runs:
            summaries[name] = summarise_scenario(scenario, runs, directory.meta)
    return summaries


def latest_cases(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one summary of each scenario; a case is the last one of its name."""
    merged: dict[str, dict[str, Any]] = {}
    for part in summaries:
        cases = merged.get(part["scenario"], {}).get("cases", {}) | part["cases"]
        merged[part["scenario"]] = {**part, "cases": cases}
    return list(merged.values())


def lost_by_nodrop(directory: RunDirectory) -> int:
    """Return how many packets nodrop's driver dropped in all cases with a qdisc."""
    held = {
        (name, case.name)
        for name, scenario in directory.scenarios.items()
        for case in scenario.cases()
        if case.has_queue
    }
    return sum(
        int(run.metrics.get("lost", 0))
        for run in directory.runs
        if run.variant == "nodrop" and (run.scenario, run.case) in held
    )


def unaccounted(directory: RunDirectory) -> list[Run]:
    """Return the runs in which the account of packets does not balance."""
    return [run for run in directory.runs if run.metrics.get("unaccounted", 0) != 0]
