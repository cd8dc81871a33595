# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.report.overview``: the README's picture, results/overview.svg.

On the left what each driver lost of 1,000 packets, by the kind of traffic; on the right the
latency beside a bulk flow. ``results/overview.toml`` says which cases of which runs, ``results/``
has the data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report import files, plot
from bench.report.summary import summarise
from bench.report.table import caption
from lab.guest.variant import Variant
from lab.kernel.artifacts import REPOSITORY
from nodrop.errors import NodropError

RESULTS = REPOSITORY / "results"
PAIRS = 10
"""A figure for everybody has at least so many."""
INCHES = (10.0, 4.0)
VARIANTS = [str(variant) for variant in Variant]


def draw(wanted: Mapping[str, Any]) -> Figure:
    """Return the picture that ``overview.toml`` describes.

    Raises:
        NodropError: a run is not there, or has too few pairs.
    """
    losses, last = wanted["loss"], wanted["latency"]["run"]
    runs = list(dict.fromkeys([*(loss["run"] for loss in losses), last]))
    shown = {run: summarise(files.load(RESULTS / run))[run] for run in runs}
    for run, summary in shown.items():
        if summary["pairs"] < PAIRS:
            raise NodropError(f"Run {run} has {summary['pairs']} pairs, not {PAIRS}.")

    def per_1000(index: int, name: str) -> plot.Numbers:
        loss = losses[index]
        found = shown[loss["run"]]["cases"][loss["case"]]["variants"][name]
        lost = 1000 * found["lost"]["median"] / found[loss["of"]]["median"]
        return {"median": lost, "low": lost, "high": lost}

    figure = Figure(figsize=INCHES, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[len(losses), 2.2])
    plot.Panel(
        "Lost, of 1,000 packets",
        "packets of 1,000, logarithmic",
        [loss["label"] for loss in losses],
        per_1000,
        VARIANTS,
        linear=0.01,
    ).draw(left)
    plot.latency(shown[last], VARIANTS).draw(right)
    plot.finish(figure, caption(shown), VARIANTS)
    return figure


if __name__ == "__main__":
    with mpl.rc_context(plot.STYLE):
        figure = draw(tomllib.loads((RESULTS / "overview.toml").read_text(encoding="utf-8")))
        figure.savefig(RESULTS / "overview.svg", metadata={"Date": None})
