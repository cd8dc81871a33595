# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import proc
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab.roots import ensure_kernel
from nodrop.progress import Progress
from packages.root import Root

BUILD_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def root(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Root]:
    """A fresh layer on Debian 12, for the tests of one file."""
    if os.geteuid() != 0:
        pytest.skip("Debian roots are entered by chroot, which needs root.")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        kernels = tuple(ensure_kernel(name, progress) for name in ("6.1", "6.12"))
    upper = tmp_path_factory.mktemp("layer") / "upper"
    upper.mkdir()
    yield Root(kernels, upper)
    shutil.rmtree(upper)


def build(version: str = "") -> list[Path]:
    """Build the packages and return their files."""
    done = proc.run(
        [REPOSITORY / "scripts/deb", *([version] if version else [])], timeout=BUILD_TIMEOUT_S
    )
    assert done.status == 0, done.output
    return [REPOSITORY / line for line in done.output.split() if line.endswith("_all.deb")]
