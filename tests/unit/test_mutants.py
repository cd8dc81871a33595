# SPDX-License-Identifier: GPL-2.0-only
"""Each mutant's texts are in the sources, once: one that is not breaks nothing."""

from __future__ import annotations

from pathlib import Path

from mutants_core import CORE
from mutants_events import EVENTS
from mutants_front import FRONT
from mutants_tap import TAP

KMOD = Path(__file__).resolve().parents[2] / "kmod"


def test_each_mutant_is_found_once() -> None:
    odd = []
    for mutant in (*CORE, *FRONT, *EVENTS, *TAP):
        source = (KMOD / mutant.file).read_text(encoding="utf-8")
        for old, new in ((mutant.old, mutant.new), *mutant.wider):
            if source.count(old) != 1 or new == old:
                odd.append((mutant.name, old))
    assert odd == []
