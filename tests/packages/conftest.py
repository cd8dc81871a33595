# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.root import REPOSITORY, Root


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    """A fresh layer on Debian 12, for the tests of one file."""
    roots = os.environ.get("NODROP_ROOTS")
    if not roots:
        pytest.skip("NODROP_ROOTS does not say where Debian roots are.")
    if os.geteuid() != 0:
        pytest.skip("Debian roots are entered by chroot, which needs root.")
    lower = Path(roots) / "bookworm"
    if not (lower / "usr/sbin/dkms").exists():
        pytest.skip(f"{lower} is no Debian root with DKMS.")
    place = os.environ.get("NODROP_LAYERS", "/var/tmp")
    layer = Root(lower, Path(tempfile.mkdtemp(prefix="nodrop-layer-", dir=place)))
    layer.make()
    yield layer
    layer.remove()


def build(version: str = "") -> list[str]:
    """Build the packages and return their paths in the roots."""
    done = subprocess.run(
        [REPOSITORY / "scripts/deb", *([version] if version else [])],
        capture_output=True,
        text=True,
        check=False,
    )
    if "packages are missing" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return [f"/nodrop/{line}" for line in done.stdout.split()]
