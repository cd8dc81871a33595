# SPDX-License-Identifier: GPL-2.0-only
"""The mutants apply to the sources, and every file has one; the rows of a seed of the sweep."""

from __future__ import annotations

import importlib
import itertools
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest
from guest.conftest import PROGRAMS
from guest.test_sweep import ROWS
from mutants.test_caught import KUNIT, MUTANTS, mutated

from proof.selftests import PROGRAMS as PROGRAM_FOLDER
from proof.selftests import find_cases
from proof.sweep.rows import NAMES, VALUES, choose, excluded, parse

KMOD = Path(__file__).resolve().parents[3] / "kmod"


def test_each_mutant_changes_its_file() -> None:
    for mutant in MUTANTS:
        text = (KMOD / mutant.file).read_text(encoding="utf-8")
        assert mutated(mutant, text) != text


def test_each_is_caught_by_an_existing_test() -> None:
    rows = [parse(mutant.caught_by) for mutant in MUTANTS if "=" in mutant.caught_by]
    assert rows
    tried = [parse(row) for row in ROWS]
    assert all(row in tried for row in rows)
    named = {mutant.caught_by for mutant in MUTANTS if "=" not in mutant.caught_by}
    cases = {f"{program.name}::{case}" for program in PROGRAMS for case in find_cases(program)}
    assert named <= cases | {path.name for path in PROGRAMS} | {KUNIT}


CASES = """
def case_plain() -> None: ...

@each("mq", "pfifo limit 5", 8)
def case_of(value: object) -> None: ...

def helper() -> None: ...
"""


def test_the_cases_are_those_that_the_harness_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CASES, encoding="utf-8")
    monkeypatch.setenv("LAB_MODULES", str(tmp_path))
    monkeypatch.syspath_prepend(PROGRAM_FOLDER)
    harness = importlib.import_module("harness")
    names = runpy.run_path(str(program), {"each": harness.each})
    cases = [value for name, value in names.items() if name.startswith("case_")]
    assert list(harness.by_name(cases)) == find_cases(program)
    assert find_cases(program) == ["plain", "of_mq", "of_pfifo_limit_5", "of_8"]


def test_each_program_names_its_cases() -> None:
    assert all(find_cases(program) for program in PROGRAMS)


def test_each_file_of_the_core_and_of_tap_has_a_mutant() -> None:
    files = {
        str(path.relative_to(KMOD))
        for name in ("flow", "tap")
        for path in (KMOD / name).glob("*.c")
    }
    # module.c only registers the module.
    assert files - {"flow/module.c"} <= {mutant.file for mutant in MUTANTS}


def test_a_seed_has_every_possible_pair() -> None:
    rows = choose(3)
    assert rows == choose(3) != choose(4)
    assert not any(excluded(asdict(row)) for row in rows)
    seen = {
        (one, other, getattr(row, one), getattr(row, other))
        for row in rows
        for one, other in itertools.combinations(NAMES, 2)
    }
    # Two values may be possible together and yet in no row, if no third value goes with both.
    missing = [
        (one, other, first, second)
        for one, other in itertools.combinations(NAMES, 2)
        for first, second in itertools.product(VALUES[one], VALUES[other])
        if not excluded({one: first, other: second}) and (one, other, first, second) not in seen
    ]
    for one, other, first, second in missing:
        rest = [name for name in NAMES if name not in (one, other)]
        for values in itertools.product(*(VALUES[name] for name in rest if name != "ring")):
            names = [name for name in rest if name != "ring"]
            given = {one: first, other: second, **dict(zip(names, values, strict=True))}
            assert excluded(given), given
