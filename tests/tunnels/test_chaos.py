# SPDX-License-Identifier: GPL-2.0-only
"""A round of torture for each kind of tunnel: no splat, no leak, packets flow again.

Longer runs: docs/tunnels.md.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nodrop import lab
from nodrop.guest.tunnels.torture.victims import VICTIMS
from nodrop.kernel import Kernel, ensure_kernel
from nodrop.progress import Progress

FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "tunnel-kasan")
SEED = int(os.environ.get("NODROP_TEST_SEED", "1"))
TIMEOUT_S = 400.0

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    with Progress() as progress:
        return ensure_kernel(progress, FLAVOUR)


@pytest.mark.parametrize("kind", VICTIMS)
def test_survives(kernel: Kernel, kind: str, tmp_path: Path) -> None:
    command = ["python3", "-m", "nodrop.guest.tunnels.torture", "--type", kind]
    command += ["--seed", str(SEED), "--seconds", "1"]
    run = lab.run(kernel, command, out=tmp_path, timeout=TIMEOUT_S)
    result = json.loads((tmp_path / f"tunnel-torture-{kind}-{SEED}.json").read_text())
    assert not result["violation"], f"{result['violation']}\n{result['look']}"
    assert not run.splats, run.log
    assert run.status == 0, run.output
    # It was torture: events happened, and packets were sent and came out.
    assert result["sent"] > 1000
    assert result["received"] > 0
    assert sum(result["without_effect"].values()) < sum(result["events"].values()) / 2
