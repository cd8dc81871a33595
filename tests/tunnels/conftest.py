# SPDX-License-Identifier: GPL-2.0-only
"""The two kernels to compare: without the patches in series/, and with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import on_terminal

from lab import uml
from lab.channels import GuestRun
from lab.kernel import Kernel, ensure_kernel

REPOSITORY = Path(__file__).resolve().parents[2]
FLAVOURS = ("tunnel-stock", "tunnel")
ATTEMPTS = 3
"""Some results depend on time, too, and vary on a busy machine. Only a difference that persists
counts."""


def boot(
    kernel: Kernel, argv: list[str], out: Path, timeout: float, env: dict[str, str] | None = None
) -> GuestRun:
    """Run a program in a guest; its log stays in kernel.log."""
    env = {"PYTHONPATH": str(REPOSITORY), **(env or {})}
    run = uml.run(kernel, argv, out=out, timeout=timeout, env=env)
    (out / "kernel.log").write_text(run.log, encoding="utf-8")
    return run


@dataclass(frozen=True)
class Side:
    """One of the two kernels."""

    name: str
    kernel: Kernel

    def run(
        self, argv: list[str], out: Path, timeout: float, env: dict[str, str] | None = None
    ) -> GuestRun:
        """Run a program in a guest; fail on splats or a bad exit status."""
        run = boot(self.kernel, argv, out, timeout, env)
        assert not run.splats, "\n".join(splat.text for splat in run.splats)
        assert run.status == 0, run.output
        return run


@pytest.fixture(scope="session")
def sides(request: pytest.FixtureRequest) -> tuple[Side, ...]:
    """The kernels without the series and with it; progress is on the terminal."""
    with on_terminal(request) as progress:
        return tuple(Side(name, ensure_kernel(progress, name)) for name in FLAVOURS)
