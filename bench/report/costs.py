# SPDX-License-Identifier: GPL-2.0-only
"""Instructions per packet: from raw data to a table for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.guest.costcases import AXES
from bench.report.tablerows import MISSING
from lab.variant import Variant
from nodrop.errors import NodropError

LOOP_EXCESS = 0.02
"""Share that the guest's clock and other programs may add to the loop of known length."""

Costs = dict[str, dict[str, "Cost"]]
"""Case -> driver -> cost."""


@dataclass(frozen=True)
class Cost:
    """A driver's cost in a case, over all rounds.

    Attributes:
        per_packet: instructions per packet read, one number per round.
        delivered: packets read.
        lost: packets dropped by the driver.
    """

    per_packet: tuple[float, ...]
    delivered: int
    lost: int

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return median(self.per_packet)

    @property
    def spread(self) -> float:
        """Range of the rounds, as a share of their median."""
        return (max(self.per_packet) - min(self.per_packet)) / self.median


def counted(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results that were not skipped."""
    return [result for result in results if "skipped" not in result]


def loop_excess(result: Mapping[str, Any]) -> float:
    """Return by how much the loop's ticks exceed its instructions, as a share of them."""
    return float(result["loop_ticks"] / result["loop_instructions"] - 1)


def check(results: Sequence[Mapping[str, Any]]) -> None:
    """Check that ticks were instructions, and that every packet is accounted for.

    Raises:
        NodropError: a check failed, or there are no results.
    """
    if not results:
        raise NodropError("There are no results.")
    if not counted(results):
        raise NodropError(f"Nothing was measured: {results[0]['skipped']}.")
    for result in counted(results):
        where = f"{result['case']}, {result['variant']}"
        if not 0 <= loop_excess(result) <= LOOP_EXCESS:
            raise NodropError(
                f"{where}: {result['loop_instructions']:,} instructions took "
                f"{result['loop_ticks']:,} ticks: ticks are not instructions."
            )
        if result["unaccounted"]:
            raise NodropError(f"{where}: {result['unaccounted']} packets are not accounted for.")
        if any(one["idle_ms"] for one in result["rounds"]):
            raise NodropError(f"{where}: the CPU was idle, which counts as instructions.")


def costs(results: Sequence[Mapping[str, Any]]) -> Costs:
    """Return the costs, in the order of the results."""
    found: Costs = {}
    for result in counted(results):
        case = found.setdefault(result["case"], {})
        before = case.get(result["variant"], Cost((), 0, 0))
        rounds = tuple(one["ticks"] / one["delivered"] for one in result["rounds"])
        case[result["variant"]] = Cost(
            before.per_packet + rounds,
            before.delivered + result["delivered"],
            before.lost + result["lost"],
        )
    return found


def axes(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the cases of each axis in the data, and their labels there."""
    found: dict[str, dict[str, str]] = {}
    for result in counted(results):
        for axis, label in result["axes"].items():
            found.setdefault(axis, {})[result["case"]] = label
    ordered = [axis for axis in AXES if axis in found]
    return {axis: found[axis] for axis in [*ordered, *(found.keys() - AXES.keys())]}


def _row(label: str, by_variant: Mapping[str, Cost], variants: Sequence[str]) -> list[str]:
    medians = {variant: cost.median for variant, cost in by_variant.items()}
    stock = medians.get(Variant.STOCK)
    row = [label, *(f"{medians[v]:,.0f}" if v in medians else MISSING for v in variants)]
    for variant in variants:
        if variant == Variant.STOCK:
            continue
        if stock is None or variant not in medians:
            row += [MISSING, MISSING]
        else:
            row += [f"{medians[variant] - stock:+,.0f}", f"{medians[variant] / stock:.3f}"]
    row.append(f"{max(cost.spread for cost in by_variant.values()):.1%}")
    for name in ("delivered", "lost"):
        values = (f"{getattr(by_variant[v], name):,}" for v in variants if v in by_variant)
        row.append(" / ".join(values))
    return row


def _table(
    title: str, labels: Mapping[str, str], found: Costs, variants: Sequence[str]
) -> list[str]:
    others = [variant for variant in variants if variant != Variant.STOCK]
    head = [title, *variants]
    head += [word for v in others for word in (f"{v} - stock", f"{v} / stock")]
    head += ["spread", "packets", "lost"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    rows += [_row(label, found[case], variants) for case, label in labels.items()]
    return ["| " + " | ".join(row) + " |" for row in rows] + [""]


def markdown(results: Sequence[Mapping[str, Any]], meta: Mapping[str, Any]) -> str:
    """Return a table for each axis, and a note on how they were made."""
    found, by_axis = costs(results), axes(results)
    seen = {variant for by_variant in found.values() for variant in by_variant}
    variants = [str(variant) for variant in Variant if variant in seen]
    tables = [
        line
        for axis, labels in by_axis.items()
        for line in _table(AXES.get(axis, axis), labels, found, variants)
    ]
    excess = [loop_excess(result) for result in counted(results)]
    rounds = {len(cost.per_packet) for case in found.values() for cost in case.values()}
    return "\n".join(
        [
            *tables,
            "Instructions for each packet that was read, a GSO packet being one. "
            f"Packets and lost: {' / '.join(variants)}. Spread: from the least round to the most, "
            "of the driver that has more of it.",
            "",
            f"Linux {meta['kernel']['release']} on one CPU, {meta['qemu']}, counted by -icount. "
            f"Medians of {min(rounds)} rounds. A loop of "
            f"{counted(results)[0]['loop_instructions']:,} "
            f"instructions was found to have {min(excess):.2%} to {max(excess):.2%} more: the "
            "guest's clock and other programs, whose part is in all numbers. All packets "
            "accounted for.",
            "",
        ]
    )
