# SPDX-License-Identifier: GPL-2.0-only
"""Each mutant's texts are in the sources, once: one that is not breaks nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutant import Mutant
from mutants_core import CORE
from mutants_events import EVENTS
from mutants_front import FRONT
from mutants_tap import TAP

KMOD = Path(__file__).resolve().parents[2] / "kmod"


@pytest.mark.parametrize("mutant", [*CORE, *FRONT, *EVENTS, *TAP], ids=lambda mutant: mutant.name)
def test_mutant_is_found_once(mutant: Mutant) -> None:
    source = (KMOD / mutant.file).read_text(encoding="utf-8")
    for old, new in ((mutant.old, mutant.new), *mutant.wider):
        assert source.count(old) == 1
        assert new != old
