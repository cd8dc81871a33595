# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's packages on Debian's kernels: installed, working, removed. The longest tests first.

Needs root, for the Debian roots. NODROP_TEST_KERNELS names the kernels to test on ("6.1 6.12");
the default is all. Tests that hardly depend on the kernel run on one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from batches import machine_of, run_batch

from bench import instructions
from bench.guest.costcases import CASES
from bench.report import costs
from bench.report.files import read_rows
from lab.debian import LIVE_KERNELS, TOOLS, Setup
from lab.kernel.artifacts import REPOSITORY
from lab.roots import kernel_names
from lab.variant import COMPARED
from nodrop.progress import Progress
from proof.selftests import find_selftests

KERNELS = tuple(os.environ.get("NODROP_TEST_KERNELS", "").split()) or kernel_names()
OTHERS = [name for name in KERNELS if name != "7.3"]
"""Kernels whose drivers differ from 7.3's, with which all programs run in user mode."""
_ALL = find_selftests(REPOSITORY / "proof/programs")
DIFFERENT = ("tun_", "vhost_")
"""Prefixes of programs that depend on a kernel's drivers or its network core."""
SELFTESTS = [
    path for path in _ALL if path.name.startswith(DIFFERENT) and path.name != "tun_protocol"
]
"""tun_protocol patches the lab's core module, which these kernels do not have."""
TAPS = [path for path in _ALL if path.name.startswith("tap_")]
"""Programs for macvtap and ipvtap."""
VPNS = [REPOSITORY / "tests/kernels/command/vpns"]
"""Real VPNs, and the command's output about them."""
PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/programs")
COMPAT_PROGRAMS = find_selftests(REPOSITORY / "tests/compat")
DROPS = REPOSITORY / "proof/programs/cmd_drops"
LIVE_PROGRAMS = find_selftests(REPOSITORY / "tests/kernels/live")
ROUNDS = "100"
"""How often to load and unload the livepatch under load."""

AFTER_REMOVAL = "stock_again"
MOST = "6.12"
"""The kernel for tests that hardly depend on the kernel."""
COUNTED = "7.3"
"""The kernel to count instructions on: it has all drivers."""


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
def test_programs(kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Both kinds of consumer, and the stock modules beside nodrop's."""
    programs = [path for path in PROGRAMS if path.name != AFTER_REMOVAL]
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
    programs = [path for path in PROGRAMS if path.name == AFTER_REMOVAL]
    run_batch(machine_of(kernel, Setup.REMOVED), programs, tmp_path, subtests, timeout=60.0)


@pytest.mark.skipif(COUNTED not in KERNELS, reason=f"not on {COUNTED}")
def test_instructions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instructions per packet are plausible, include all packets, and hardly vary."""
    with capsys.disabled(), Progress() as progress:
        instructions.measure(COUNTED, 1, tmp_path, progress)
    table = instructions.write_table(tmp_path)
    results, _ = read_rows(tmp_path)
    found = costs.costs(results)
    for case in found.values():
        assert list(case) == list(COMPARED)
        assert all(1000 < cost.median < 300_000 for cost in case.values())
        assert case["upstream"].lost == case["nodrop"].lost == 0
    assert len(found) == len(CASES)
    for case in (found[one.name] for one in CASES if one.is_never_full):
        assert case["stock"].lost == 0
        # In one round the kernel may have done other work.
        assert all(sorted(c.per_packet)[-2] < 1.02 * c.median for c in case.values())
        assert 0.9 < case["nodrop"].median / case["stock"].median < 1.1
    assert all(found[one.name]["stock"].lost for one in CASES if one.txqueuelen < 64)
    used = {one["case"]: one["used_queues"] for one in results}
    assert all(used[one.name] > one.queues / 2 for one in CASES)
    assert "Not " not in table
