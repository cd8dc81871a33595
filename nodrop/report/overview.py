# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.report.overview``: the README's picture, results/overview.svg.

On the left what each driver lost of 1,000 packets, by the kind of traffic; on the right the
latency beside a bulk flow. ``results/overview.toml`` says which cases of which runs, ``results/``
has the data.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nodrop.errors import NodropError
from nodrop.guest.plan import Variant
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.report import files, look, plot
from nodrop.report.summary import summarise
from nodrop.report.table import caption

RESULTS = REPOSITORY / "results"
PAIRS = 10
"""A figure for everybody has at least so many."""
INCHES = (10.0, 4.0)
CAPTION_CHARS = 150
SMALLEST = 0.01
"""Of 1,000 packets; below it the axis is linear, so that it has a zero."""
VARIANTS = [str(variant) for variant in Variant]


def per_1000(loss: Mapping[str, str], summary: Mapping[str, Any]) -> dict[str, float]:
    """Return how many of 1,000 packets each driver lost in a case, of those that were ``of``."""
    found = summary["cases"][loss["case"]]["variants"]
    return {
        name: 1000 * found[name]["lost"]["median"] / found[name][loss["of"]]["median"]
        for name in VARIANTS
    }


def _losses(axes: Axes, losses: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    width = 0.8 / len(VARIANTS)
    for name, offset in zip(VARIANTS, look.offsets(len(VARIANTS), width), strict=True):
        for index, (_, values) in enumerate(losses):
            height = values[name]
            axes.bar(index + offset, height, width * 0.92, **look.bars(name))
            axes.text(
                index + offset,
                height * 1.15 or SMALLEST / 5,
                f"{height:.2g}" if height < 100 else f"{height:.0f}",
                ha="center",
                va="bottom",
                fontsize=7 if height else 9,
                fontweight="normal" if height else "bold",
            )
    axes.set_yscale("symlog", linthresh=SMALLEST, linscale=0.5)
    axes.set_ylim(0, 5000)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("packets of 1,000, logarithmic")
    axes.set_xticks(range(len(losses)), [label for label, _ in losses], fontsize=7.5)
    axes.set_title("Lost, of 1,000 packets")


def draw(wanted: Mapping[str, Any], results: Path = RESULTS) -> Figure:
    """Return the picture that ``overview.toml`` describes.

    Raises:
        NodropError: a run is not there, or has too few pairs.
    """
    latency = wanted["latency"]["run"]
    runs = list(dict.fromkeys([*(loss["run"] for loss in wanted["loss"]), latency]))
    shown = {run: summarise(files.load(results / run))[run] for run in runs}
    for run, summary in shown.items():
        if summary["pairs"] < PAIRS:
            raise NodropError(f"Run {run} has {summary['pairs']} pairs, not {PAIRS}.")
    figure = Figure(figsize=INCHES, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[len(wanted["loss"]), 2.2])
    _losses(left, [(loss["label"], per_1000(loss, shown[loss["run"]])) for loss in wanted["loss"]])
    plot.latency(right, shown[latency], VARIANTS)
    right.set_title("Latency beside a TCP flow")
    for axes in (left, right):
        look.grid(axes)
    look.legend(figure, VARIANTS)
    words = textwrap.fill(caption(shown), CAPTION_CHARS)
    figure.supxlabel(words, fontsize=7, color=look.FAINT)
    return figure


if __name__ == "__main__":
    with mpl.rc_context(look.STYLE):
        figure = draw(tomllib.loads((RESULTS / "overview.toml").read_text(encoding="utf-8")))
        figure.savefig(RESULTS / "overview.svg", metadata={"Date": None})
