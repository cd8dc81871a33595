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
from typing import NamedTuple

import pytest
from accounting import account

from bench import rundir, scenario, session
from lab.guest import GuestDied, GuestTimeout
from lab.machines import LIVE_KERNELS, TOOLS, Machine, Setup, ensure_machine, ensure_packages
from lab.roots import BUILTIN, kernel_names
from lab.sources import REPOSITORY
from lab.variant import COMPARED, Variant
from nodrop.progress import Progress
from proof.selftests import find_selftests, read_batch

KERNELS = tuple(os.environ.get("LAB_TEST_KERNELS", "").split()) or kernel_names()
OTHERS = [name for name in KERNELS if name != "7.3"]
"""Kernels whose drivers differ from 7.3's, with which all programs run in user mode."""
_ALL = find_selftests(REPOSITORY / "proof/programs")
DIFFERENT = ("tun_", "vhost_")
"""Prefixes of programs that depend on a kernel's drivers or its network core."""
SELFTESTS = [
    path
    for path in _ALL
    if path.name.startswith(DIFFERENT) and path.name not in ("tun_protocol.py", "tun_beside.py")
]
"""tun_protocol.py patches the lab's core module, which these kernels do not have."""
BESIDE = REPOSITORY / "proof/programs/tun_beside.py"
TAPS = [path for path in _ALL if path.name.startswith("tap_")]
"""Programs for macvtap and ipvtap."""
_HERE = REPOSITORY / "tests/kernels"
AT_WORK, UPSTREAM = _HERE / "programs/at_work.py", _HERE / "programs/upstream.py"
AFTER_REMOVAL = _HERE / "programs/stock_again.py"
FOREIGN = {"LAB_FOREIGN": f"{TOOLS}/modules/foreign.ko"}
LIVE = {"LAB_MODULES": f"{TOOLS}/live", "LAB_ROUNDS": "100", **FOREIGN}
"""Environment of the livepatch's program: its modules, and how often to load and unload it."""

MOST = "6.12"
"""The kernel for tests that hardly depend on the kernel."""
VM = "6.12-trixie"
"""The kernel of the virtual machine; the host's is the lab's own."""
COUNTED = "7.3"
"""The kernel to count instructions on: it has all drivers."""


class Batch(NamedTuple):
    """Programs that run in one guest.

    Attributes:
        kernels: those to run on, each in a guest of its own.
        timeout: for all programs, s, as for Machine.run().
        code_changes: as for Machine.run().
    """

    kernels: Sequence[str]
    setup: Setup
    programs: Sequence[Path]
    timeout: float
    env: dict[str, str] | None = None
    code_changes: bool = False


BATCHES = {
    "flow_control": Batch(
        OTHERS, Setup.INSTALLED, [*SELFTESTS, *find_selftests(REPOSITORY / "tests/compat")], 420.0
    ),
    "beside": Batch(
        [name for name in KERNELS if name in BUILTIN.kernels], Setup.INSTALLED, [BESIDE], 240.0
    ),
    "macvtap": Batch(OTHERS, Setup.INSTALLED, TAPS, 420.0),
    # Loaded into the running stock modules and unloaded again.
    "livepatch": Batch(
        [name for name in KERNELS if name in LIVE_KERNELS],
        *(Setup.LIVE, [_HERE / "live/livepatch.py"], 180.0, LIVE, True),
    ),
    # Those of other vendors.
    "livepatches": Batch(
        [name for name in KERNELS if name == MOST],
        *(Setup.INSTALLED, [_HERE / "programs/other_livepatches.py"], 120.0, FOREIGN, True),
    ),
    # Both kinds of consumer, and the stock modules beside nodrop's.
    "programs": Batch(KERNELS, Setup.INSTALLED, [AT_WORK, UPSTREAM], 240.0),
    # Real VPNs with both drivers, and the command's output about them.
    "vpns": Batch(KERNELS, Setup.INSTALLED, [_HERE / "programs/vpns.py"], 300.0),
    # nodrop drops needs BTF and kprobes, which user mode does not have; tracing patches code.
    "command": Batch(
        [name for name in KERNELS if name == MOST],
        *(Setup.INSTALLED, [REPOSITORY / "proof/programs/cmd_drops.py"], 360.0, None, True),
    ),
    # A whole boot: only this Debian's root has D-Bus and sshd.
    "systemd": Batch(
        [name for name in KERNELS if name == "6.12-trixie"],
        *(Setup.INSTALLED, [_HERE / "programs/under_systemd.py"], 135.0),
    ),
    "removal": Batch(KERNELS, Setup.REMOVED, [AFTER_REMOVAL], 60.0),
    # Part of the gate.
    "smoke_installed": Batch([MOST], Setup.INSTALLED, [AT_WORK], 60.0),
    "smoke_removed": Batch([MOST], Setup.REMOVED, [AFTER_REMOVAL], 60.0),
}


def machine_of(name: str, setup: Setup) -> Machine:
    with Progress() as progress:
        return ensure_machine(name, setup, ensure_packages(progress), progress)


@pytest.mark.parametrize(
    ("name", "kernel"), [(name, kernel) for name in BATCHES for kernel in BATCHES[name].kernels]
)
def test_batch(name: str, kernel: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Each case of a program is a subtest."""
    batch, died = BATCHES[name], None
    machine = machine_of(kernel, batch.setup)
    try:
        whole = machine.run(
            ["python3", "-m", "proof.batch", *batch.programs],
            out=tmp_path,
            timeout=batch.timeout,
            env=batch.env,
            code_changes=batch.code_changes,
        )
    except (GuestDied, GuestTimeout) as error:
        whole, died = None, error
    for report in read_batch(batch.programs, tmp_path, whole):
        with subtests.test(f"{machine.kernel.name}:{report.name}"):
            account(report, subtests)
    if died:
        raise died
    assert whole is not None
    assert whole.status == 0, whole.output
    assert not whole.splats, "\n".join(splat.text for splat in whole.splats)


@pytest.mark.skipif(VM not in KERNELS, reason=f"not on {VM}")
def test_virtual_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A guest's virtio driver with QEMU and vhost-net: only a stalled reader's packets drop."""
    matrix: scenario.Matrix = {"vhost": [True, False], "flows": [8], "udp_bytes": [1400]}
    chosen = replace(scenario.load("vm").with_length(1, 2.0), matrix=matrix)
    with capsys.disabled(), Progress() as progress:
        session.measure([chosen], COMPARED, tmp_path, progress)
    runs = rundir.load(tmp_path).runs
    assert len(runs) == len(COMPARED) * len(chosen.cases())
    for run in runs:
        assert run.metrics["transactions"] > 1
        assert run.metrics["delivered"] > 0
        if run.variant == Variant.NODROP:
            assert run.metrics["lost"] == run.metrics["driver_tx0_drop_guard"]


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
