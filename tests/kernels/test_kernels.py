# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's packages on Debian's own kernels: installed, at work, removed. The longest first.

Needs root, for the Debian roots. NODROP_TEST_KERNELS names kernels to test on ("6.1 6.12");
without it all are. NODROP_TEST_SHORT=1 tests on one kernel what has little to do with kernels,
and lets the livepatch in and out less often.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest
from accounting import account

from nodrop.bench import instructions
from nodrop.guest.costcases import CASES
from nodrop.guest.plan import Variant
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab.hearing import GuestDied, GuestTimeout
from nodrop.lab.machine import LIVE_KERNELS, TOOLS, Machine, Setup, ensure_machine, ensure_packages
from nodrop.lab.roots import kernel_names
from nodrop.lab.selftests import find_selftests, read_batch
from nodrop.progress import Progress
from nodrop.report import costs
from nodrop.report.files import read_rows

KERNELS = tuple(os.environ.get("NODROP_TEST_KERNELS", "").split()) or kernel_names()
_ALL = find_selftests(REPOSITORY / "tests/selftests")
SELFTESTS = [path for path in _ALL if not path.name.startswith(("cmd_", "tap_"))]
"""Those of the drivers. The command's are in COMMAND_PROGRAMS, with less repetition: each of
its runs takes seconds on an emulated processor."""
TAPS = [path for path in _ALL if path.name.startswith("tap_")]
"""Of macvtap and ipvtap."""
PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/programs")
COMPAT_PROGRAMS = find_selftests(REPOSITORY / "tests/compat")
COMMAND_PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/command")
LIVE_PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/live")
SHORT = bool(os.environ.get("NODROP_TEST_SHORT"))
ROUNDS = "20" if SHORT else "100"
"""How often the livepatch goes in and out under load."""

AFTER_REMOVAL = "stock_again"
MOST = "6.12"
"""The kernel on which every VPN is tested, and what has little to do with kernels."""
FOR_PROGRAMS = tuple(kernel for kernel in KERNELS if kernel == MOST or not SHORT)
"""The kernels on which real VPNs, macvtap and the command are tested."""
COUNTED = "7.3"
"""The kernel whose instructions are counted: it has all drivers."""
FOR_SELFTESTS = tuple(kernel for kernel in KERNELS if kernel != COUNTED or not SHORT)
"""The kernels on which all of user mode's tests run: that one's version is user mode's own."""
TWO_VPNS = {"NODROP_TEST_VPNS": "openvpn wireguard-go"}
"""On the others: the one of the issue trackers, and the one with most threads."""


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


def vpns(kernel: str) -> dict[str, str]:
    """Return the environment that says which VPNs a kernel's guests use."""
    return {} if kernel == MOST else TWO_VPNS


@pytest.mark.parametrize("kernel", FOR_SELFTESTS)
def test_flow_control(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """All that is tested under User-Mode Linux, with the modules that DKMS built."""
    programs = [*SELFTESTS, *COMPAT_PROGRAMS]
    run_batch(machine_of(kernel, Setup.INSTALLED), programs, tmp_path, subtests, timeout=420.0)


@pytest.mark.parametrize("kernel", FOR_PROGRAMS)
def test_macvtap(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Macvtap and ipvtap, with the tap that DKMS built."""
    run_batch(machine_of(kernel, Setup.INSTALLED), TAPS, tmp_path, subtests, timeout=420.0)


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


@pytest.mark.parametrize("kernel", FOR_PROGRAMS)
def test_programs(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Real VPNs, a real vhost-net client, and the stock modules beside ours."""
    programs = [path for path in PROGRAMS if path.name != AFTER_REMOVAL]
    machine = machine_of(kernel, Setup.INSTALLED)
    run_batch(machine, programs, tmp_path, subtests, timeout=240.0, env=vpns(kernel))


@pytest.mark.parametrize("kernel", FOR_PROGRAMS)
def test_command(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """What people type, with VPNs on both drivers, and where things end badly."""
    machine = machine_of(kernel, Setup.INSTALLED)
    programs = [path for path in COMMAND_PROGRAMS if kernel == MOST or path.name == "vpns"]
    if kernel == MOST:
        # The kernel of user mode has neither its types nor probes of events.
        programs.append(REPOSITORY / "tests/selftests/cmd_why")
    # Tracing changes the kernel's code under load.
    run_batch(
        machine,
        programs,
        tmp_path,
        subtests,
        timeout=240.0,
        env=vpns(kernel),
        code_changes=kernel == MOST,
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_removal(
    machine_of: MachineOf, kernel: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The administrator removes the package and has the kernel's own modules again."""
    programs = [path for path in PROGRAMS if path.name == AFTER_REMOVAL]
    run_batch(machine_of(kernel, Setup.REMOVED), programs, tmp_path, subtests, timeout=60.0)


@pytest.mark.skipif(COUNTED not in KERNELS, reason=f"not on {COUNTED}")
def test_instructions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instructions per packet are instructions, of all packets, and hardly vary."""
    with capsys.disabled(), Progress() as progress:
        instructions.measure(COUNTED, 1, tmp_path, progress)
    table = instructions.write_table(tmp_path)
    results, _ = read_rows(tmp_path)
    found = costs.costs(results)
    for case in found.values():
        assert list(case) == list(Variant)
        assert all(1000 < cost.median < 300_000 for cost in case.values())
        assert case["upstream"].lost == case["nodrop"].lost == 0
    assert len(found) == len(CASES)
    for case in (found[one.name] for one in CASES if one.is_never_full):
        assert case["stock"].lost == 0
        # All rounds but one, in which the kernel may have had other work.
        assert all(sorted(c.per_packet)[-2] < 1.02 * c.median for c in case.values())
        assert 0.9 < case["nodrop"].median / case["stock"].median < 1.1
    assert all(found[one.name]["stock"].lost for one in CASES if one.txqueuelen < 64)
    used = {one["case"]: one["used_queues"] for one in results}
    assert all(used[one.name] > one.queues / 2 for one in CASES)
    assert "Not " not in table
