# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.report.overview``: the README's picture, results/overview.svg.

On the left what each driver lost of 1,000 packets, by the kind of traffic; on the right the
latency beside a bulk flow. ``results/overview.toml`` says which cases of which runs, ``results/``
has the data.
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nodrop.errors import FAILED, NodropError
from nodrop.report import look, plot
from nodrop.report.table import caption
from nodrop.report.theirs import RESULTS, VARIANTS, Ours

DATA = RESULTS / "overview.toml"
PICTURE = RESULTS / "overview.svg"
TITLE = "Lost, of 1,000 packets"
PAIRS = 10
"""A figure for everybody has at least so many."""
INCHES = (10.0, 4.0)
CAPTION_CHARS = 150
SMALLEST = 0.01
"""Of 1,000 packets; below it the axis is linear, so that it has a zero."""


@dataclass(frozen=True)
class Loss:
    """A group of bars: what each driver lost in one case.

    Attributes:
        label: for people.
        run: a run below ``results/`` and its scenario.
        case: its name.
        of: the metric that counts what was sent.
    """

    label: str
    run: str
    case: str
    of: str

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Check and make one.

        Raises:
            ValueError: a field is missing or unknown.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(f"{data.get('label')}: {error}") from error

    def per_1000(self, ours: Ours) -> dict[str, float]:
        """Return how many of 1,000 packets each driver lost.

        Raises:
            NodropError: it was not measured, or in too few pairs.
        """
        enough(self.run, ours)
        found = ours.case(self.run, self.case)["variants"]
        try:
            return {
                name: 1000 * found[name]["lost"]["median"] / found[name][self.of]["median"]
                for name in VARIANTS
            }
        except (LookupError, ZeroDivisionError) as error:
            raise NodropError(f"Run {self.run} lacks {error} in '{self.case}'.") from error


def enough(run: str, ours: Ours) -> None:
    """Raise NodropError when a run has too few pairs."""
    pairs = ours.summary(run)["pairs"]
    if pairs < PAIRS:
        raise NodropError(f"Run {run} has {pairs} pairs; a figure for everybody needs {PAIRS}.")


def _losses(axes: Axes, losses: Sequence[Loss], ours: Ours) -> None:
    width = 0.8 / len(VARIANTS)
    found = [loss.per_1000(ours) for loss in losses]
    for position, name in enumerate(VARIANTS):
        offset = (position - (len(VARIANTS) - 1) / 2) * width
        heights = [values[name] for values in found]
        places = [index + offset for index in range(len(found))]
        axes.bar(places, heights, width * 0.92, **look.bars(name))
        for place, height in zip(places, heights, strict=True):
            axes.text(
                place,
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
    axes.set_xticks(range(len(losses)), [loss.label for loss in losses], fontsize=7.5)
    axes.set_title(TITLE)


def draw(losses: Sequence[Loss], latency: str, ours: Ours) -> Figure:
    """Return the picture.

    Args:
        latency: the run with the percentiles.

    Raises:
        NodropError: something was not measured, or in too few pairs.
    """
    enough(latency, ours)
    figure = Figure(figsize=INCHES, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[len(losses), 2.2])
    _losses(left, losses, ours)
    plot.latency(right, ours.summary(latency), VARIANTS)
    right.set_title("Latency beside a TCP flow")
    for axes in (left, right):
        look.grid(axes)
    look.legend(figure, VARIANTS)
    runs = list(dict.fromkeys([*(loss.run for loss in losses), latency]))
    shown = {run: ours.summary(run) for run in runs}
    words = textwrap.fill(caption(shown), CAPTION_CHARS)
    figure.supxlabel(words, fontsize=7, color=look.FAINT)
    return figure


def main(path: Path = DATA, picture: Path = PICTURE) -> int:
    """Draw the picture."""
    try:
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
            losses = [Loss.from_data(one) for one in data["loss"]]
            latency = data["latency"]["run"]
        except (OSError, ValueError, LookupError) as error:
            raise NodropError(f"{path} cannot be used: {error}.") from error
        with mpl.rc_context(look.STYLE):
            figure = draw(losses, latency, Ours())
            figure.savefig(picture, metadata={"Date": None})
    except NodropError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return FAILED
    print(f"Made: {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
