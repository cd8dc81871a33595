# SPDX-License-Identifier: GPL-2.0-only
"""Whether the machine was quiet enough for the speeds to mean something.

A machine is called noisy when one of these is true of a scenario's runs:

- other programs took more than OTHERS of the CPUs, or a hypervisor more than STEAL;
- in more than DISTURBED_RUNS of the runs both together took more than DISTURBED;
- stock's own values of the first metric are spread wider than SPREAD in the median case
  (:mod:`nodrop.report.spread`).

Spreads of other drivers, or in one case, are no fault of the machine: they are told, and said to be
wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodrop.bench.scenario import Scenario
from nodrop.report import spread
from nodrop.report.files import Run
from nodrop.report.spread import MIN_PAIRS, SPREAD

OTHERS = 0.05
STEAL = 0.02
DISTURBED = 0.2
DISTURBED_RUNS = 0.1


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
    spreads = spread.of_scenario(scenario, runs)
    stock = spreads["stock"]["median"] if "stock" in spreads else None
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
        "spreads": spreads,
    }


def verdict(summaries: Mapping[str, Any]) -> str:
    """Return whether the machine was noisy, or why that is not known; empty when it was quiet."""
    found = {name: summary["noise"] for name, summary in summaries.items()}
    said = []
    if loud := _by_name({name: ", ".join(one["reasons"]) for name, one in found.items()}):
        said.append(f"Noisy machine: {loud}. Do not trust the speeds.")
    if unknown := _by_name({name: _unknown(one) for name, one in found.items()}):
        said.append(f"Whether the machine was quiet is not known: {unknown}.")
    return " ".join(said)


def _unknown(one: Mapping[str, Any]) -> str:
    if one["noisy"] is not None:
        return ""
    if one["others_cpu_share"] is None:
        return "what else it did is not recorded"
    return f"stock ran no case {MIN_PAIRS} times"


def wide(summaries: Mapping[str, Any]) -> str:
    """Return which values are spread widely, in a sentence; empty: none are."""
    found = _by_name(
        {name: spread.remark(_spreads(summary)) for name, summary in summaries.items()}
    )
    return f"Widely spread: {found}." if found else ""


def remarks(summaries: Mapping[str, Any]) -> str:
    """Return what is to be distrusted, the machine or some values; empty: nothing is."""
    return f"{verdict(summaries)} {wide(summaries)}".strip()


def sentences(summaries: Mapping[str, Any]) -> list[str]:
    """Return the verdict on a machine and what it rests on, for a page."""
    said = f"{verdict(summaries) or 'The machine was quiet.'} {wide(summaries)}".strip()
    return [said, *measured(summaries)]


def measured(summaries: Mapping[str, Any]) -> list[str]:
    """Return what the verdict rests on: a sentence for each scenario."""
    told = []
    for name, summary in summaries.items():
        one = summary["noise"]
        parts = [
            _taken("others", one["others_cpu_share"], OTHERS),
            _taken("a hypervisor", one.get("steal_share"), STEAL),
            spread.sentence(_spreads(summary))
            or f"stock ran no case {MIN_PAIRS} times, so its spread is not known",
        ]
        told.append(f"{name}: {'; '.join(parts)}.")
    return told


def _taken(who: str, share: float | None, mark: float) -> str:
    if share is None:
        return f"what {who} took of the CPUs is not recorded"
    return f"{who} took {share:.1%} of the CPUs (noisy: over {mark:.0%})"


def _spreads(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spreads; summaries of older versions have none."""
    found: Mapping[str, Any] = summary["noise"].get("spreads", {})
    return found


def _by_name(said: Mapping[str, str]) -> str:
    """Return what is said of each scenario, with its name when there are several."""
    several = len(said) > 1
    return "; ".join(
        f"{name}: {words}" if several else words for name, words in said.items() if words
    )


def noisy(summaries: Mapping[str, Any]) -> bool | None:
    """Return whether any scenario's machine was noisy; None: of some it is not known."""
    known = [summary["noise"]["noisy"] for summary in summaries.values()]
    return True if any(known) else None if None in known else False
