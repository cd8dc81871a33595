# SPDX-License-Identifier: GPL-2.0-only
"""Makes the summary of a run: medians, intervals, paired ratios.

Layout of one scenario (``nodrop -j bench SCENARIO`` prints exactly this object)::

    schema, scenario, title, kernel, machine, runs, pairs, seconds
    variants -> stock|upstream|nodrop -> metric -> {median, low, high, n, confidence}
    ratios   -> nodrop/stock|...      -> metric -> the same
    joins    -> metric -> "geometric mean" | "sum"
    cases    -> case -> {parameters, variants, ratios}

A ratio compares two runs of one pair, made right after each other; the median runs over the
ratios, not the other way round. Pairs whose divisor is 0 have none.

The outer ``variants`` and ``ratios`` are about all cases together. For ``variants`` the
cases of each pair are joined into one number as ``joins`` says, and the median runs over
the pairs. For ``ratios`` the median runs over the ratios of all pairs and all cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from nodrop.bench.scenario import Metric, Scenario
from nodrop.report import stats
from nodrop.report.files import SUMMARY_NAME, Run, RunDirectory

SCHEMA = 1
RATIOS = (("nodrop", "stock"), ("upstream", "stock"), ("nodrop", "upstream"))

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
    """Join the cases of each pair; pairs that lack a case are left out."""
    result: Series = {}
    for variant in {variant for case in by_case for variant in case}:
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
                result.setdefault(variant, {})[metric] = numbers.to_data()
    return result


def _ratios(all_series: Mapping[str, list[Series]]) -> dict[str, dict[str, Any]]:
    """Return the ratios of each metric, over all of its series together."""
    result: dict[str, dict[str, Any]] = {}
    for above, below in RATIOS:
        for metric, by_case in all_series.items():
            numbers = [one for values in by_case for one in ratio(values, above, below)]
            if numbers:
                entry = result.setdefault(f"{above}/{below}", {})
                entry[metric] = stats.interval(numbers).to_data()
    return result


def _metric_names(runs: Iterable[Run], metrics: Mapping[str, Metric]) -> list[str]:
    """Return the declared metrics first, then all others that were measured."""
    return list(dict.fromkeys([*metrics, *(name for run in runs for name in run.metrics)]))


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
        declared = {name: [all_series[name]] for name in scenario.metrics}
        cases[case.name] = {
            "parameters": dict(case.parameters),
            "variants": _variants(all_series),
            "ratios": _ratios(declared),
        }
    by_case = {
        name: [series([run for run in runs if run.case == case], name) for case in cases]
        for name in scenario.metrics
    }
    together = {
        name: joined(by_case[name], metric.join) for name, metric in scenario.metrics.items()
    }
    return {
        "schema": SCHEMA,
        "scenario": scenario.name,
        "title": scenario.title,
        "kernel": meta["kernel"],
        "machine": meta["machine"],
        "started": meta["started"],
        "source": meta["source"],
        "runs": len(runs),
        "pairs": len({run.pair for run in runs}),
        "others_cpu_share": meta.get("others_cpu_share"),
        "seconds": scenario.seconds,
        "joins": {name: metric.join for name, metric in scenario.metrics.items()},
        "variants": _variants(together),
        "ratios": _ratios(by_case),
        "cases": cases,
    }


def summarise(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    """Return the summary of each scenario of a run that has results."""
    found = {}
    for name, scenario in directory.scenarios.items():
        runs = [run for run in directory.runs if run.scenario == name]
        if runs:
            found[name] = summarise_scenario(scenario, runs, directory.meta)
    return found


def write(directory: RunDirectory, summaries: Mapping[str, Any]) -> None:
    """Write the summaries beside the raw data."""
    text = json.dumps({"schema": SCHEMA, "scenarios": summaries}, indent=2)
    (directory.path / SUMMARY_NAME).write_text(text + "\n", encoding="utf-8")


def lost_by_nodrop(directory: RunDirectory) -> int:
    """Return how many packets nodrop lost in all runs where a qdisc could hold them."""
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
    """Return the runs whose packets were not all found again."""
    return [run for run in directory.runs if run.metrics.get("unaccounted", 0) != 0]
