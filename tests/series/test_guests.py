# SPDX-License-Identifier: GPL-2.0-only
"""The drivers with all patches of series/ in guests: proof/programs/series.py, and their selftest.

LAB_TEST_FLAVOUR names the kernel. That of the flavour ``series`` has the patches; its own drivers
are tested. In others, the patched drivers are modules beside the kernel's own.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from accounting import account
from conftest import FLAVOUR
from guest.test_sweep import ROWS, assert_holds, sweep

from lab import uml
from lab.kernel import Artifacts, Kernel, series
from lab.sources import REPOSITORY
from lab.variant import Variant
from proof.selftests import PROGRAMS, run_selftest

SELFTEST = Path("tools/testing/selftests/net/tun_backpressure.py")
LIMIT_S = 400.0


def driver_of(kernel: Kernel) -> Variant:
    """Return the driver with the patches: the kernel's own, if the kernel has them."""
    return Variant.SERIES if series.fits(kernel) else Variant.UPSTREAM


def test_program(
    kernel: Kernel, artifacts: Artifacts, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    report = run_selftest(kernel, artifacts, PROGRAMS / "series.py", tmp_path, timeout=LIMIT_S)
    account(report, subtests, FLAVOUR)


def test_sweep(kernel: Kernel, artifacts: Artifacts, tmp_path: Path) -> None:
    """The fixed rows of the sweep hold, of tun and tap."""
    rows = [row for row in ROWS if row.startswith(("kind=tun", "kind=tap"))]
    words = [word for row in rows for word in ("--row", row)]
    assert_holds(sweep(kernel, artifacts, tmp_path, "--driver", driver_of(kernel), *words))


def test_selftest(kernel: Kernel, artifacts: Artifacts, tmp_path: Path) -> None:
    """The selftest of the series, which is written for the kernel's tree, passes."""
    folder = tmp_path / SELFTEST.parent
    for name in ("tools/testing/selftests/net", "tools/net/ynl"):
        shutil.copytree(kernel.source / name, tmp_path / name, symlinks=True)
    series.write_added(SELFTEST, tmp_path)
    # lib.py imports it for ynl, which the test does not use.
    (tmp_path / "yaml.py").write_text("SafeLoader = CSafeLoader = object\n", encoding="utf-8")
    run = uml.run(
        kernel,
        [
            *(sys.executable, "-m", "guestlib.drivers", driver_of(kernel)),
            *("env", "-C", folder, f"PYTHONPATH={tmp_path}", "PYTHONDONTWRITEBYTECODE=1"),
            *(sys.executable, SELFTEST.name),
        ],
        artifacts=artifacts,
        out=tmp_path / "out",
        timeout=LIMIT_S,
        env={"PYTHONPATH": str(REPOSITORY)},
    )
    assert not run.splats, run.splats[0].text
    wrong = [line for line in run.output.splitlines() if line.startswith("not ok")]
    assert (run.status, wrong) == (0, []), run.output
    assert "ok 10 " in run.output, run.output
