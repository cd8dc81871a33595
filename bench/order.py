# SPDX-License-Identifier: GPL-2.0-only
"""The order of runs: what is compared runs side by side.

In each pair the drivers of one case run one right after another, so that a change of the
machine's speed meets them all. All orders of the drivers take turns in each case, so that
none is always the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bench.guest.plan import Job
from bench.scenario import Scenario
from lab.guest.variant import Variant


def jobs(scenarios: Sequence[Scenario], variants: Sequence[Variant]) -> list[Job]:
    """Return all runs of all scenarios, pair by pair."""
    orders = list(itertools.permutations(variants))
    return [
        Job(
            scenario=scenario.name,
            kind=scenario.kind,
            case=case.name,
            parameters=case.parameters,
            variant=variant,
            pair=pair,
            seconds=scenario.seconds,
        )
        for pair in range(max(scenario.pairs for scenario in scenarios))
        for scenario in scenarios
        if pair < scenario.pairs
        for number, case in enumerate(scenario.cases())
        for variant in orders[(pair + number) % len(orders)]
    ]
