# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's packages on Debian's own kernels: installed, at work, removed. The longest first.

Needs root, for the Debian roots. NODROP_TEST_KERNELS names kernels to test on ("6.1 6.12");
without it all are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest
from accounting import account

from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab.hearing import GuestDied, GuestTimeout
from nodrop.lab.machine import LIVE_KERNELS, TOOLS, Machine, Setup, ensure_machine, ensure_packages
from nodrop.lab.roots import kernel_names
from nodrop.lab.selftests import find_selftests, read_batch
from nodrop.progress import Progress

KERNELS = tuple(os.environ.get("NODROP_TEST_KERNELS", "").split()) or kernel_names()
SELFTESTS = find_selftests(REPOSITORY / "tests/selftests")
PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/programs")
LIVE_PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/live")
ROUNDS = os.environ.get("NODROP_ROUNDS", "100")
"""How often the livepatch goes in and out under load."""

AFTER_REMOVAL = "stock_again"


class MachineOf(Protocol):
    """Gives the machine with a kernel."""

    def __call__(self, name: str, setup: Setup) -> Machine: ...


pytestmark = pytest.mark.kernels


@pytest.fixture(scope="session")
def machine_of(request: pytest.FixtureRequest) -> MachineOf:
    """Give the machine with a kernel."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def get(name: str, setup: Setup) -> Machine:
        with capture.global_and_fixture_disabled(), Progress() as progress:
            return ensure_machine(name, setup, ensure_packages(progress), progress)

    return get


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
    """Run test programs in one guest and account for each.

    Args:
        timeout: seconds for all, as for Machine.run().
    """
    died = None
    try:
        whole = machine.run(
            ["python3", "-m", "nodrop.guest.batch", *programs],
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


@pytest.mark.parametrize("kernel", KERNELS)
def test_flow_control(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """All that is tested under User-Mode Linux, with the modules that DKMS built."""
    run_batch(machine_of(kernel, Setup.INSTALLED), SELFTESTS, tmp_path, subtests, timeout=300.0)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name in LIVE_KERNELS])
def test_livepatch(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The kernel's own modules, lossless and stock again as they run."""
    env = {"NODROP_MODULES": f"{TOOLS}/live", "NODROP_ROUNDS": ROUNDS}
    machine = machine_of(kernel, Setup.LIVE)
    run_batch(
        machine,
        LIVE_PROGRAMS,
        tmp_path,
        subtests,
        timeout=180.0,
        env=env,
        code_changes=True,
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_programs(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Real VPNs, a real vhost-net client, and the stock modules beside ours."""
    programs = [path for path in PROGRAMS if path.name != AFTER_REMOVAL]
    run_batch(machine_of(kernel, Setup.INSTALLED), programs, tmp_path, subtests, timeout=120.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_removal(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The administrator removes the package and has the kernel's own modules again."""
    programs = [path for path in PROGRAMS if path.name == AFTER_REMOVAL]
    run_batch(machine_of(kernel, Setup.REMOVED), programs, tmp_path, subtests, timeout=60.0)
