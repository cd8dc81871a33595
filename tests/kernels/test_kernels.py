# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's packages on Debian's own kernels: installed, at work, removed.

Needs root, for the Debian roots. NODROP_TEST_KERNELS names kernels to test on ("6.1 6.12");
without it all are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from accounting import account

from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab.hearing import GuestDied, GuestTimeout
from nodrop.lab.machine import Machine, build_packages, ensure_machine
from nodrop.lab.roots import kernel_names
from nodrop.lab.selftests import find_selftests, read_batch
from nodrop.progress import Progress

KERNELS = tuple(os.environ.get("NODROP_TEST_KERNELS", "").split()) or kernel_names()
SELFTESTS = find_selftests(REPOSITORY / "tests/selftests")
PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/programs")
AFTER_REMOVAL = "stock_again"
REMOVE = "dpkg --purge nodrop-dkms"

pytestmark = pytest.mark.kernels


@pytest.fixture(scope="session")
def machine_of(request: pytest.FixtureRequest) -> Callable[[str], Machine]:
    """Give the machine with a kernel; its packages are built once."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    built: list[tuple[Path, ...]] = []

    def get(name: str) -> Machine:
        with capture.global_and_fixture_disabled(), Progress() as progress:
            if not built:
                built.append(build_packages(progress))
            return ensure_machine(name, built[0], progress)

    return get


def run_batch(
    machine: Machine,
    programs: Sequence[Path],
    out: Path,
    subtests: pytest.Subtests,
    *,
    before: str = "true",
    timeout: float,
) -> None:
    """Run test programs in one guest, after a shell command, and account for each.

    Args:
        timeout: seconds for all, as for Machine.run().
    """
    words = " ".join(str(program) for program in programs)
    died = None
    try:
        whole = machine.run(
            ["sh", "-c", f"{before} && exec python3 -m nodrop.guest.batch {words}"],
            out=out,
            timeout=timeout,
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
    machine_of: Callable[[str], Machine], kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """All that is tested under User-Mode Linux, with the modules that DKMS built."""
    run_batch(machine_of(kernel), SELFTESTS, tmp_path, subtests, timeout=240.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_programs(
    machine_of: Callable[[str], Machine], kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Real VPNs, a real vhost-net client, and the stock modules beside ours."""
    programs = [path for path in PROGRAMS if path.name != AFTER_REMOVAL]
    run_batch(machine_of(kernel), programs, tmp_path, subtests, timeout=120.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_removal(
    machine_of: Callable[[str], Machine], kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The administrator removes the package and has the kernel's own modules again."""
    programs = [path for path in PROGRAMS if path.name == AFTER_REMOVAL]
    run_batch(machine_of(kernel), programs, tmp_path, subtests, before=REMOVE, timeout=60.0)
