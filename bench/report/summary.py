# SPDX-License-Identifier: GPL-2.0-only
"""Makes the summary of a run: medians, intervals, paired ratios.

Layout of one scenario (``nodrop-lab -j bench SCENARIO`` prints this object)::

    scenario, title, kernel, machine, started, source, runs, pairs, seconds
    continued -> [when an interrupted run was continued]
    noise -> {noisy, reasons, ...}, see :mod:`bench.report.noise`
    variants -> stock|upstream|nodrop|old -> metric -> {median, low, high, n, confidence}
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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from bench.report import noise, stats
from bench.report.files import Run, RunDirectory
from bench.scenario import Metric, Scenario

RATIOS = (
    *(("nodrop", "stock"), ("upstream", "stock"), ("nodrop", "upstream")),
    *(("old", "stock"), ("nodrop", "old")),
)

Series = dict[str, dict[int, float]]
"""Variant -> pair -> value, of one metric."""


def series(runs: Iterable[Run], metric: str) -> Series:
    """Return a metric's values; runs that lack it are left out."""
    found: Series = {}
    for run in runs:
        if metric in run.metrics:
            found.setdefault(run.variant, {})[run.pair] = run.metrics[metric]
    return found


def joined(by_case: list[Series], how: str) -> Series:
    """Join the cases of each pair; skip pairs that lack a case."""
    result: Series = {}
    # In the order of the data, so the output is reproducible.
    for variant in dict.fromkeys(variant for case in by_case for variant in case):
        values = [case.get(variant, {}) for case in by_case]
        whole = set.intersection(*(set(case) for case in values))
        result[variant] = {
            pair: stats.join([case[pair] for case in values], how) for pair in sorted(whole)
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
                numbers = stats.interval(list(values.values()))
                result.setdefault(variant, {})[metric] = asdict(numbers)
    return result


def _ratios(all_series: Mapping[str, Series]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for above, below in RATIOS:
        for metric, values in all_series.items():
            if numbers := ratio(values, above, below):
                entry = result.setdefault(f"{above}/{below}", {})
                entry[metric] = asdict(stats.interval(numbers))
    return result


def _metric_names(runs: Iterable[Run], metrics: Mapping[str, Metric]) -> list[str]:
    """Return the declared metrics first, then all others in the results."""
    return list(dict.fromkeys([*metrics, *(name for run in runs for name in run.metrics)]))


def complete_pairs(runs: Iterable[Run], variants: Iterable[str]) -> int:
    """Return the smallest number of complete pairs of a case, with a run of each variant."""
    wanted = set(variants)
    found: dict[str, dict[int, set[str]]] = {}
    for run in runs:
        found.setdefault(run.case, {}).setdefault(run.pair, set()).add(run.variant)
    counts = (sum(made >= wanted for made in of_case.values()) for of_case in found.values())
    return min(counts, default=0)


def summarise_scenario(
    scenario: Scenario, runs: list[Run], meta: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the summary of one scenario."""
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
            [series([run for run in runs if run.case == case], name) for case in cases],
            metric.join,
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
        "noise": noise.of_scenario(scenario, runs),
        "continued": meta["continued"],
        "seconds": scenario.seconds,
        "joins": {name: metric.join for name, metric in scenario.metrics.items()},
        "variants": _variants(together),
        "ratios": _ratios(together),
        "cases": cases,
    }


def summarise(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    """Return the summaries of all scenarios that have results."""
    found = {}
    for name, scenario in directory.scenarios.items():
        runs = [run for run in directory.runs if run.scenario == name]
        if runs:
            found[name] = summarise_scenario(scenario, runs, directory.meta)
    return found


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
