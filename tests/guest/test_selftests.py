# SPDX-License-Identifier: GPL-2.0-only
"""Runs the programs of tests/selftests and tests/compat, and the KUnit modules, in guests.

Each result that they report is a subtest here. Each program has a guest of its own, but in QEMU,
where a boot takes longer than most of them: there, several share one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from accounting import account

from nodrop import lab
from nodrop.kernel import Artifacts, Kernel, kconfig
from nodrop.lab.selftests import (
    find_kunit,
    find_selftests,
    read_batch,
    run_kunit,
    run_selftest,
)

TESTS = Path(__file__).parents[1]
PROGRAMS = [*find_selftests(TESTS / "selftests"), *find_selftests(TESTS / "compat")]
FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "debug")
SHARED = kconfig.runner(FLAVOUR) == "qemu"
ELSEWHERE = ("cmd_", "qemu")
"""Beginnings of those that a shared guest does not run: the command's own, which are about no
kernel code, and a QEMU in QEMU."""
TOGETHER = 6
"""How many share a guest; one that dies takes those with it that come after."""
BATCH_TIMEOUT_S = 120.0


def batches() -> list[list[Path]]:
    chosen = [path for path in PROGRAMS if not path.name.startswith(ELSEWHERE)]
    return [chosen[at : at + TOGETHER] for at in range(0, len(chosen), TOGETHER)]


def first_and_last(programs: Sequence[Path]) -> str:
    return f"{programs[0].stem}-{programs[-1].stem}"


@pytest.mark.skipif(SHARED, reason="these share guests")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_selftest(
    kernel: Kernel,
    artifacts: Artifacts,
    program: Path,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    account(run_selftest(kernel, artifacts, program, tmp_path), subtests, FLAVOUR)


@pytest.mark.skipif(not SHARED, reason="each has its own guest")
@pytest.mark.parametrize("programs", batches(), ids=first_and_last)
def test_together(
    kernel: Kernel,
    artifacts: Artifacts,
    programs: list[Path],
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    whole, died = None, None
    command = [sys.executable, "-m", "nodrop.guest.batch", *map(str, programs)]
    env = {"PYTHONPATH": str(TESTS.parent)}
    try:
        whole = lab.run(
            kernel, command, out=tmp_path, artifacts=artifacts, timeout=BATCH_TIMEOUT_S, env=env
        )
    except (lab.GuestDied, lab.GuestTimeout) as error:
        died = error
    for report in read_batch(programs, tmp_path, whole):
        with subtests.test(report.name):
            account(report, subtests, FLAVOUR)
    if died:
        raise died
    assert whole is not None
    assert whole.status == 0, whole.output
    assert not whole.splats, "\n".join(splat.text for splat in whole.splats)


def test_kunit(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    modules = find_kunit(artifacts)
    if not modules:
        pytest.skip("kmod/ builds no KUnit module")
    for module in modules:
        account(run_kunit(kernel, artifacts, module, tmp_path), subtests, FLAVOUR)
