# SPDX-License-Identifier: GPL-2.0-only
"""Debian roots with a writable layer, and commands in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import on_terminal

from lab import roots
from lab.roots import RELEASES, DebianKernel, Release, ensure_kernel
from lab.sources import REPOSITORY
from nodrop import proc

BUILD_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class WritableRoot:
    """One Debian root, with a layer that keeps changes.

    Attributes:
        kernels: the root's kernels, oldest first.
        upper: the folder of the changes.
    """

    kernels: tuple[DebianKernel, ...]
    upper: Path

    @property
    def releases(self) -> tuple[str, ...]:
        """The kernels' releases, as ``uname -r`` prints them."""
        return tuple(kernel.release for kernel in self.kernels)

    @property
    def version(self) -> str:
        """The version of the oldest kernel's headers package."""
        status = (self.kernels[0].root.path / "var/lib/dpkg/status").read_text(encoding="utf-8")
        block = status.partition(f"Package: linux-headers-{self.releases[0]}\n")[2]
        return block.partition("\nVersion: ")[2].partition("\n")[0]

    def run(self, script: str, timeout_s: float = 400) -> proc.Completed:
        """Run a bash script in the root, where the repository has the same path.

        KERNEL is the oldest kernel's release, VERSION its headers package's version.
        """
        return roots.run_in(
            self.kernels[0].root,
            ["bash", "-c", script],
            env={"KERNEL": self.releases[0], "VERSION": self.version},
            upper=self.upper,
            share=[REPOSITORY],
            timeout=timeout_s,
        )

    def succeed(self, script: str, timeout_s: float = 400) -> str:
        """Run a script; fail if it fails, else return its output."""
        done = self.run(f"set -e; {script}", timeout_s)
        assert done.status == 0, f"{script}\n{done.output}"
        return done.output

    def module(self, kernel: str, name: str) -> str:
        """Return a module's file, as modprobe would find it for a kernel."""
        return self.succeed(f"modinfo -k {kernel} -n {name}").strip()


@contextmanager
def layer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, release: Release
) -> Iterator[WritableRoot]:
    """Create a layer on a release's root, with all its kernels, for the block."""
    if os.geteuid() != 0:
        pytest.skip("Debian roots are entered by chroot, which needs root.")
    with on_terminal(request) as progress:
        kernels = tuple(ensure_kernel(name, progress) for name in release.kernels)
    upper = tmp_path_factory.mktemp("layer") / "upper"
    upper.mkdir()
    yield WritableRoot(kernels, upper)
    shutil.rmtree(upper)


@pytest.fixture(scope="module")
def root(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WritableRoot]:
    with layer(request, tmp_path_factory, RELEASES[0]) as fresh:
        yield fresh


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.kernels[0])
def debian(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WritableRoot]:
    """A layer on each Debian in turn: DKMS 3.0 in bookworm, 3.2 in trixie."""
    with layer(request, tmp_path_factory, request.param) as fresh:
        yield fresh


def build(version: str = "") -> list[Path]:
    done = proc.run(
        [REPOSITORY / "packaging/deb", *([version] if version else [])], timeout=BUILD_TIMEOUT_S
    )
    assert done.status == 0, done.output
    return [REPOSITORY / line for line in done.output.split() if line.endswith("_all.deb")]
