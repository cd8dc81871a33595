# SPDX-License-Identifier: GPL-2.0-only
"""The mutants apply to the sources, and every file of the core and of tap has one."""

from __future__ import annotations

from pathlib import Path

from guest.test_sweep import ROWS
from mutants.test_caught import mutated
from sharing import PROGRAMS

from proof.mutants import KUNIT, MUTANTS
from proof.sweep.rows import parse

KMOD = Path(__file__).resolve().parents[3] / "kmod"


def test_each_mutant_changes_its_file() -> None:
    for mutant in MUTANTS:
        text = (KMOD / mutant.file).read_text(encoding="utf-8")
        assert mutated(mutant, text) != text


def test_each_is_caught_by_an_existing_test() -> None:
    programs = {path.name for path in PROGRAMS}
    rows = [parse(mutant.caught_by) for mutant in MUTANTS if "=" in mutant.caught_by]
    assert rows
    tried = [parse(row) for row in ROWS]
    assert all(row in tried for row in rows)
    named = {mutant.caught_by for mutant in MUTANTS if "=" not in mutant.caught_by}
    assert named <= programs | {KUNIT}


def test_each_file_of_the_core_and_of_tap_has_a_mutant() -> None:
    files = {
        str(path.relative_to(KMOD))
        for name in ("flow", "tap")
        for path in (KMOD / name).glob("*.c")
    }
    # module.c only registers the module.
    assert files - {"flow/module.c"} <= {mutant.file for mutant in MUTANTS}
