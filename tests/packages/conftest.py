# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodrop import proc
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab.roots import RELEASES, Release, ensure_kernel
from nodrop.progress import Progress
from packages.root import Root

BUILD_TIMEOUT_S = 300.0


@contextmanager
def layer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, release: Release
) -> Iterator[Root]:
    """A fresh layer on a release's root, with all of its kernels."""
    if os.geteuid() != 0:
        pytest.skip("Debian roots are entered by chroot, which needs root.")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        kernels = tuple(ensure_kernel(name, progress) for name in release.kernels)
    upper = tmp_path_factory.mktemp("layer") / "upper"
    upper.mkdir()
    yield Root(kernels, upper)
    shutil.rmtree(upper)


@pytest.fixture(scope="module")
def root(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Root]:
    """Debian 12, for the tests of one file."""
    with layer(request, tmp_path_factory, RELEASES[0]) as fresh:
        yield fresh


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.codename)
def debian(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Root]:
    """Each Debian in turn: DKMS 3.0 in bookworm, 3.2 in trixie."""
    with layer(request, tmp_path_factory, request.param) as fresh:
        yield fresh


def build(version: str = "") -> list[Path]:
    """Build the packages and return their files."""
    done = proc.run(
        [REPOSITORY / "scripts/deb", *([version] if version else [])], timeout=BUILD_TIMEOUT_S
    )
    assert done.status == 0, done.output
    return [REPOSITORY / line for line in done.output.split() if line.endswith("_all.deb")]
