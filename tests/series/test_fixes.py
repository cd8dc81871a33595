# SPDX-License-Identifier: GPL-2.0-only
"""The patches of series/fixes: each fault is in the stock kernel, and gone with the patches.

Programs show the faults in guests, litmus tests those that depend on the order of memory accesses
or on a rare interleaving.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from accounting import account
from conftest import on_terminal

from lab.guest import GuestDied
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel, kconfig
from lab.kernel.source import ensure_source, patches
from lab.sources import REPOSITORY
from nodrop.progress import Progress
from proof.herd import Herd
from proof.selftests import find_cases, run_selftest

STOCK, FIXED = "debug", "series-fixes"
PROGRAM = Path(__file__).parent / "programs/net_faults.py"
FOLDER = REPOSITORY / "series/fixes"
PATCHES = patches(["series/fixes"])
LITMUS = sorted(FOLDER.glob("*.litmus"))
VERDICTS = {"broken": "Sometimes", "fixed": "Never"}
LEAST_S = "10"
"""What a fault makes wait for ever is waited for so long, seconds."""
REPORTS = {
    "tun_write": "the writer sleeps after",
    "tap_write": "the writer sleeps after",
    "tun_delete": "the writer sleeps although its device is gone",
    "tap_rings": "two sockets and their frames are leaked",
    "packet_delete": "Kernel mode signal 8",
    "replies_echo": "no reply after 0 of 20",
    "replies_echo6": "no reply after 0 of 20",
    "replies_reset": "no reply after 0 of 20",
}
"""What each case reports on the stock kernel; a part of its text, or of the log of its end."""

Guest = Callable[[str], tuple[Kernel, Artifacts]]


@pytest.fixture(scope="session")
def guest(request: pytest.FixtureRequest) -> Guest:
    @cache
    def get(flavour: str) -> tuple[Kernel, Artifacts]:
        with on_terminal(request) as progress:
            kernel = ensure_kernel(progress, flavour)
            return kernel, ensure_artifacts(kernel, progress)

    return get


def test_kernels_differ_by_the_patches_only() -> None:
    stock, fixed = kconfig.FLAVOURS[STOCK], kconfig.FLAVOURS[FIXED]
    assert (stock.fragments, stock.patches) == (fixed.fragments, [])
    assert fixed.patches == ["series/fixes"]


def test_each_case_has_a_report() -> None:
    assert [*REPORTS] == find_cases(PROGRAM)


@pytest.mark.parametrize("case", REPORTS)
def test_stock_kernel_has_the_fault(guest: Guest, case: str, tmp_path: Path) -> None:
    env = {"LAB_LEAST_S": LEAST_S}
    try:
        report = run_selftest(*guest(STOCK), PROGRAM, tmp_path, cases=[case], env=env)
    except GuestDied as died:
        text = f"{died.message}\n{died.hint}"
    else:
        assert report.failed == (case,), f"the stock kernel passes:\n{report.run.output}"
        text = dict(report.cases)[case].reason
    assert REPORTS[case] in text, text


def test_fixed_kernel(guest: Guest, tmp_path: Path, subtests: pytest.Subtests) -> None:
    account(run_selftest(*guest(FIXED), PROGRAM, tmp_path), subtests, FIXED)


@pytest.mark.parametrize("path", LITMUS, ids=lambda path: path.stem)
def test_litmus(herd: Herd, path: Path) -> None:
    wanted = VERDICTS[path.stem.rpartition("-")[2]]
    assert f"\n * Result: {wanted}\n" in path.read_text(encoding="utf-8")
    assert herd.judge(path) == wanted


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.name)
def test_form(path: Path) -> None:
    """Complete messages, no names, and a README that knows each patch."""
    message, _, rest = path.read_text(encoding="utf-8").partition("\n---\n")
    number = int(path.name[:4])
    assert message.startswith(f"Subject: [PATCH net {number}/{len(PATCHES)}] ")
    trailers = re.findall(
        r"^([A-Z][a-z]+(?:-[a-z]+)*): ", message.partition("\n\n")[2], re.MULTILINE
    )
    assert set(trailers) <= {"Fixes"}
    assert not re.search(r"^(?:From|Date):", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert "\ndiff --git " in rest
    fixes = re.findall(r'^Fixes: ([0-9a-f]{12}) \(".+"\)$', message, re.MULTILINE) or ["-"]
    row = re.search(rf"^\| {number} \|.*", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert row, "not in README.md"
    assert row[0].endswith(f"| {' '.join(fixes)} |")


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.name)
def test_checkpatch(path: Path, tmp_path: Path) -> None:
    with Progress() as progress:
        tree = ensure_source(progress).tree
    command: list[str | Path] = [
        tree / "scripts/checkpatch.pl",
        *(f"--root={tree}", "--strict", "--no-signoff", "--terse", "--no-summary"),
        # It knows commits only in a clone of the kernel's repository.
        *("--ignore", "UNKNOWN_COMMIT_ID,GIT_COMMIT_ID"),
        path,
    ]
    # In another directory, because it leaves a list of the kernel's names there.
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.stdout, done.stdout
    assert done.returncode == 0, done.stderr
