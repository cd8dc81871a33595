# SPDX-License-Identifier: GPL-2.0-only
"""nodrop's modules fit Debian's arm64 kernels, and work on one of them, which QEMU emulates.

Needs root, for the Debian roots.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from accounting import account
from conftest import on_terminal

from lab import arm64
from lab.sources import REPOSITORY
from proof.selftests import read_batch

_FOLDER = REPOSITORY / "proof/programs"
_NAMES = ("tun_detach", "tun_edge", "tun_guard", "tun_past", "tun_trace", "vhost_net")
PROGRAMS = [_FOLDER / f"{name}.py" for name in _NAMES]


@pytest.mark.parametrize("name", arm64.BUILT)
def test_modules_fit(name: str, request: pytest.FixtureRequest) -> None:
    with on_terminal(request) as progress:
        arm64.ensure_built(name, progress)


def test_flow_control(
    tmp_path: Path, request: pytest.FixtureRequest, subtests: pytest.Subtests
) -> None:
    """Each case of a program is a subtest."""
    with on_terminal(request) as progress:
        machine = arm64.ensure_machine(progress)
    whole = machine.run(
        ["python3", "-m", "proof.batch", *map(str, PROGRAMS)], out=tmp_path, timeout=100.0
    )
    for report in read_batch(PROGRAMS, tmp_path, whole):
        with subtests.test(report.name):
            account(report, subtests)
    assert whole.status == 0, whole.output
    assert not whole.splats, "\n".join(splat.text for splat in whole.splats)
