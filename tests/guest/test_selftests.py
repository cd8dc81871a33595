# SPDX-License-Identifier: GPL-2.0-only
"""Runs the programs of tests/selftests and tests/compat, and the KUnit modules, in guests.

Each result that they report is a subtest here. Each program has a guest of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from accounting import account

from nodrop.kernel import Artifacts, Kernel
from nodrop.lab.selftests import (
    find_kunit,
    find_selftests,
    run_kunit,
    run_selftest,
)

TESTS = Path(__file__).parents[1]
PROGRAMS = [*find_selftests(TESTS / "selftests"), *find_selftests(TESTS / "compat")]
FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "debug")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_selftest(
    kernel: Kernel,
    artifacts: Artifacts,
    program: Path,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    account(run_selftest(kernel, artifacts, program, tmp_path), subtests, FLAVOUR)


def test_kunit(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modules = find_kunit(artifacts)
    if not modules:
        pytest.skip("kmod/ builds no KUnit module")
    for module in modules:
        account(run_kunit(kernel, artifacts, module, tmp_path), subtests, FLAVOUR)
