# SPDX-License-Identifier: GPL-2.0-only
"""The two kernels that are compared: without the series of tunnels/series, and with it.

With NODROP_TEST_TUNNELS=tunnel-ab they are one, whose switch (tunnels/measure) is off and on:
quicker to build, and it says less, since what the series moved is in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodrop import lab
from nodrop.kernel import Kernel, ensure_kernel
from nodrop.lab.hearing import GuestRun
from nodrop.progress import Progress

REPOSITORY = Path(__file__).resolve().parents[2]
BOTH = ("tunnel-stock", "tunnel")
ONE = "tunnel-ab"
SWITCH = "/sys/module/ip_tunnel_core/parameters/features"
OFF, ON = "7", "0"
"""Bits of tunnel_features: what is switched, and is off as long as nobody measures."""


@dataclass(frozen=True)
class Side:
    """One of both kernels.

    Attributes:
        switch: what its switch is set to; "": it has none.
    """

    name: str
    kernel: Kernel
    switch: str = ""

    def run(
        self, argv: list[str], out: Path, timeout: float, env: dict[str, str] | None = None
    ) -> GuestRun:
        """Run a program in a guest; the kernel may not complain."""
        words = argv
        if self.switch:
            words = ["sh", "-c", f'echo {self.switch} >{SWITCH} && exec "$@"', "sh", *argv]
        env = {"PYTHONPATH": str(REPOSITORY), **(env or {})}
        run = lab.run(self.kernel, words, out=out, timeout=timeout, env=env)
        (out / "kernel.log").write_text(run.log, encoding="utf-8")
        assert not run.splats, "\n".join(splat.text for splat in run.splats)
        return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/tunnels" in item.nodeid:
            item.add_marker(pytest.mark.tunnels)


@contextmanager
def shown(request: pytest.FixtureRequest) -> Iterator[Progress]:
    """Progress on the terminal, whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        yield progress


@pytest.fixture(scope="session")
def sides(request: pytest.FixtureRequest) -> tuple[Side, Side]:
    """Without the series, and with it."""
    with shown(request) as progress:
        if os.environ.get("NODROP_TEST_TUNNELS") == ONE:
            kernel = ensure_kernel(progress, ONE)
            return Side("off", kernel, OFF), Side("on", kernel, ON)
        stock, series = (ensure_kernel(progress, flavour) for flavour in BOTH)
        return Side("stock", stock), Side("series", series)
