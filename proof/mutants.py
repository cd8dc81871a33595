# SPDX-License-Identifier: GPL-2.0-only
"""Mutants: changes that break the modules, each with the test of ``make test`` that catches it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

KUNIT = "KUnit"


class Mutant(NamedTuple):
    """One change to the modules.

    Attributes:
        file: relative to kmod/.
        name: the fault.
        old: text that occurs exactly once in the file.
        new: its replacement.
        caught_by: KUNIT, a program of proof/programs, or a row of the sweep.
    """

    file: str
    name: str
    old: str
    new: str
    caught_by: str


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MUTANTS = tuple(Mutant(**one) for one in _TABLE["mutant"])
