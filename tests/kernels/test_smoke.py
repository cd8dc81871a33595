# SPDX-License-Identifier: GPL-2.0-only
"""The packages on Debian's kernels: working, and removed.

Their installation compiles the modules with the headers of every kernel of that Debian.
Installing and removing, which would take minutes on an emulated CPU, happen in root layers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from batches import machine_of, run_batch

from lab.debian import Setup
from lab.kernel.artifacts import REPOSITORY

PROGRAMS = {Setup.INSTALLED: "at_work", Setup.REMOVED: "stock_again"}


@pytest.mark.parametrize("setup", PROGRAMS, ids=lambda setup: setup.value)
@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_packages(kernel: str, setup: Setup, tmp_path: Path, subtests: pytest.Subtests) -> None:
    program = REPOSITORY / "tests/kernels/programs" / PROGRAMS[setup]
    run_batch(machine_of(kernel, setup), [program], tmp_path, subtests, timeout=60.0)
