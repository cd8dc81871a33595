# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's packages on Debian's kernels: installed, working, removed. The longest tests first.

Needs root, for the Debian roots. LAB_TEST_KERNELS names the kernels to test on ("6.1 6.12");
the default is all. Tests that hardly depend on the kernel run on one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from accounting import account

from bench import rundir, scenario, session
from lab.guest import GuestDied, GuestTimeout
from lab.machines import LIVE_KERNELS, TOOLS, Machine, Setup, ensure_machine, ensure_packages
from lab.roots import kernel_names
from lab.sources import REPOSITORY
from lab.variant import COMPARED
from nodrop.progress import Progress
from proof.selftests import find_selftests, read_batch

KERNELS = tuple(os.environ.get("LAB_TEST_KERNELS", "").split()) or kernel_names()
OTHERS = [name for name in KERNELS if name != "7.3"]
"""Kernels whose drivers differ from 7.3's, with which all programs run in user mode."""
_ALL = find_selftests(REPOSITORY / "proof/programs")
DIFFERENT = ("tun_", "vhost_")
"""Prefixes of programs that depend on a kernel's drivers or its network core."""
SELFTESTS = [
    path for path in _ALL if path.name.startswith(DIFFERENT) and path.name != "tun_protocol.py"
]
"""tun_protocol.py patches the lab's core module, which these kernels do not have."""
TAPS = [path for path in _ALL if path.name.startswith("tap_")]
"""Programs for macvtap and ipvtap."""
_HERE = REPOSITORY / "tests/kernels"
VPNS = [_HERE / "programs/vpns"]
"""Real VPNs, and the command's output about them."""
AT_WORK = _HERE / "programs/at_work"
UPSTREAM = _HERE / "programs/upstream"
AFTER_REMOVAL = _HERE / "programs/stock_again"
COMPAT_PROGRAMS = find_selftests(REPOSITORY / "tests/compat")
DROPS = REPOSITORY / "proof/programs/cmd_drops.py"
LIVE_PROGRAMS = [_HERE / "live/livepatch"]
ROUNDS = "100"
"""How often to load and unload the livepatch under load."""

MOST = "6.12"
"""The kernel for tests that hardly depend on the kernel."""
COUNTED = "7.3"
"""The kernel to count instructions on: it has all drivers."""


def machine_of(name: str, setup: Setup) -> Machine:
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


@pytest.mark.parametrize("kernel", OTHERS)
def test_flow_control(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Flow control, with the modules that DKMS built."""
    programs = [*SELFTESTS, *COMPAT_PROGRAMS]
    run_batch(machine_of(kernel, Setup.INSTALLED), programs, tmp_path, subtests, timeout=420.0)


@pytest.mark.parametrize("kernel", OTHERS)
def test_macvtap(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """macvtap and ipvtap, with the tap that DKMS built."""
    run_batch(machine_of(kernel, Setup.INSTALLED), TAPS, tmp_path, subtests, timeout=420.0)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name in LIVE_KERNELS])
def test_livepatch(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The livepatch, loaded into the running stock modules and unloaded again."""
    env = {"LAB_MODULES": f"{TOOLS}/live", "LAB_ROUNDS": ROUNDS}
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
def test_programs(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Both kinds of consumer, and the stock modules beside nodrop's."""
    programs = [AT_WORK, UPSTREAM]
    run_batch(machine_of(kernel, Setup.INSTALLED), programs, tmp_path, subtests, timeout=240.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_vpns(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Real VPNs with both drivers, and the command's output about them."""
    run_batch(machine_of(kernel, Setup.INSTALLED), VPNS, tmp_path, subtests, timeout=300.0)


@pytest.mark.skipif(MOST not in KERNELS, reason=f"not on {MOST}")
def test_command(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """``nodrop drops`` needs BTF and kprobes, which user mode does not have."""
    # Tracing patches the running kernel's code.
    machine = machine_of(MOST, Setup.INSTALLED)
    run_batch(machine, [DROPS], tmp_path, subtests, timeout=240.0, code_changes=True)


@pytest.mark.parametrize("kernel", KERNELS)
def test_removal(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """After the package is removed, the stock modules are back."""
    machine = machine_of(kernel, Setup.REMOVED)
    run_batch(machine, [AFTER_REMOVAL], tmp_path, subtests, timeout=60.0)


@pytest.mark.parametrize(
    ("setup", "program"),
    [(Setup.INSTALLED, AT_WORK), (Setup.REMOVED, AFTER_REMOVAL)],
    ids=["installed", "removed"],
)
def test_smoke(setup: Setup, program: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The packages on one kernel, working and removed: part of the gate."""
    run_batch(machine_of(MOST, setup), [program], tmp_path, subtests, timeout=60.0)


@pytest.mark.skipif(COUNTED not in KERNELS, reason=f"not on {COUNTED}")
def test_instructions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instructions per packet are plausible, include all packets, and hardly vary."""
    counted = replace(scenario.load("instructions"), kernel=COUNTED, pairs=1)
    with capsys.disabled(), Progress() as progress:
        session.measure([counted], COMPARED, tmp_path, progress)
    runs = rundir.load(tmp_path).runs
    by_case: dict[str, dict[str, rundir.Run]] = {}
    for run in runs:
        assert run.metrics["unaccounted"] == 0
        assert 1000 < run.metrics["instructions_per_packet"] < 300_000
        by_case.setdefault(run.case, {})[run.variant] = run
    for case in counted.cases():
        drivers = by_case[case.name]
        lost = {name: run.metrics["lost"] for name, run in drivers.items()}
        assert set(drivers) == set(map(str, COMPARED))
        assert lost["upstream"] == lost["nodrop"] == 0
        small_ring = int(case.parameters["txqueuelen"]) < 64
        assert bool(lost["stock"]) is small_ring
        queues = int(case.parameters["queues"])
        assert all(run.metrics["used_queues"] > queues / 2 for run in drivers.values())
        if not small_ring:
            # In one round the kernel may have done other work.
            for run in drivers.values():
                rounds = sorted(
                    value for name, value in run.metrics.items() if name.startswith("round_")
                )
                assert rounds[-2] < 1.02 * run.metrics["instructions_per_packet"]
            costs = {name: run.metrics["instructions_per_packet"] for name, run in drivers.items()}
            assert 0.9 < costs["nodrop"] / costs["stock"] < 1.1
