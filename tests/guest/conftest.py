# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures for tests in guests: the kernel and the modules, built once and then cached."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import on_terminal
from sharing import GuestScheduling

from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel

FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "debug")
"""The kernel's flavour; by default the one with lockdep and other debug options."""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GuestScheduling:
    return GuestScheduling(config, log)


@pytest.fixture
def time_passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that advances the clock by an hour, to make guests time out."""
    now, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed[0])

    def pass_by() -> None:
        passed[0] += 3600.0

    return pass_by


@pytest.fixture(scope="session")
def kernel(request: pytest.FixtureRequest) -> Kernel:
    with on_terminal(request) as progress:
        return ensure_kernel(progress, FLAVOUR)


@pytest.fixture(scope="session")
def artifacts(kernel: Kernel, request: pytest.FixtureRequest) -> Artifacts:
    with on_terminal(request) as progress:
        return ensure_artifacts(kernel, progress)
