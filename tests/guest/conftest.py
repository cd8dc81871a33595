# SPDX-License-Identifier: GPL-2.0-only
"""The kernel and the modules that the tests in guests share; built once, then cached."""

from __future__ import annotations

import os

import pytest

from nodrop.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop.progress import Progress

FLAVOUR = os.environ.get("NODROP_TEST_FLAVOUR", "debug")
"""The kernel that finds mistakes by itself, unless somebody asks for another."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/guest" in item.nodeid:
            item.add_marker(pytest.mark.guest)


@pytest.fixture(scope="session")
def kernel(request: pytest.FixtureRequest) -> Kernel:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        return ensure_kernel(progress, FLAVOUR)


@pytest.fixture(scope="session")
def artifacts(kernel: Kernel, request: pytest.FixtureRequest) -> Artifacts:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        return ensure_artifacts(kernel, progress)
