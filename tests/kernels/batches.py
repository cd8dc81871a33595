# SPDX-License-Identifier: GPL-2.0-only
"""Run test programs together in a machine with one of Debian's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from accounting import account

from lab.channels import GuestDied, GuestTimeout
from lab.debian import Machine, Setup, ensure_machine, ensure_packages
from nodrop.progress import Progress
from proof.selftests import read_batch


def machine_of(name: str, setup: Setup) -> Machine:
    """Return a kernel's machine."""
    with Progress() as progress:
        return ensure_machine(name, setup, ensure_packages(progress), progress)


def run_batch(
    machine: Machine,
    programs: Sequence[Path],
    out: Path,
    subtests: pytest.Subtests,
    *,
    timeout: float,
    env: dict[str, str] | None = None,
    code_changes: bool = False,
) -> None:
    """Run test programs in one guest; report each of their cases as a subtest.

    Args:
        timeout: for all programs, s, as for Machine.run().
    """
    died = None
    try:
        whole = machine.run(
            ["python3", "-m", "proof.batch", *programs],
            out=out,
            timeout=timeout,
            env=env,
            code_changes=code_changes,
        )
    except (GuestDied, GuestTimeout) as error:
        whole, died = None, error
    for report in read_batch(programs, out, whole):
        with subtests.test(f"{machine.kernel.name}:{report.name}"):
            account(report, subtests)
    if died:
        raise died
    assert whole is not None
    assert whole.status == 0, whole.output
    assert not whole.splats, "\n".join(splat.text for splat in whole.splats)
