# SPDX-License-Identifier: GPL-2.0-only
"""Figures with an interval in rows that name a result are those of its table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FIGURE = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\]")
SOURCE = re.compile(r"`([\w/-]+?)(/table.md)?`( \(\w\))? \|$")


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_figures_are_those_of_the_tables(page: str) -> None:
    checked, wrong = 0, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        source = SOURCE.search(line)
        if source and (table := ROOT / "results" / source[1] / "table.md").exists():
            known = FIGURE.findall(table.read_text(encoding="utf-8"))
            for figure in FIGURE.findall(line):
                checked += 1
                # A page may round more than the table.
                places = [len(number.partition(".")[2]) for number in figure]
                if not any(
                    all(
                        abs(float(a) - float(b)) <= 0.5001 * 10**-digits
                        for a, b, digits in zip(figure, one, places, strict=True)
                    )
                    for one in known
                ):
                    wrong.append((source[1], figure))
    assert checked
    assert not wrong
