# SPDX-License-Identifier: GPL-2.0-only
"""A Debian root with a writable layer, and commands in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import layering
from lab.kernel.artifacts import REPOSITORY
from lab.roots import RELEASES, DebianKernel, Release, ensure_kernel
from nodrop import proc
from nodrop.progress import Progress

BUILD_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Root:
    """One Debian root, with a layer that keeps what commands change.

    Attributes:
        kernels: those that it has, oldest first; all are in the same root.
        upper: a folder for the changes.
    """

    kernels: tuple[DebianKernel, ...]
    upper: Path

    @property
    def releases(self) -> tuple[str, ...]:
        """What ``uname -r`` says in its kernels."""
        return tuple(kernel.release for kernel in self.kernels)

    @property
    def version(self) -> str:
        """The version of the package that the oldest kernel's headers are from."""
        status = (self.kernels[0].root.path / "var/lib/dpkg/status").read_text(encoding="utf-8")
        block = status.partition(f"Package: linux-headers-{self.releases[0]}\n")[2]
        return block.partition("\nVersion: ")[2].partition("\n")[0]

    def run(self, script: str, timeout_s: float = 400) -> proc.Completed:
        """Run a script of bash in the root; the repository is at its own path there.

        KERNEL is the oldest kernel's release, VERSION that of its headers' package.
        """
        return layering.run_in(
            self.kernels[0].root,
            ["bash", "-c", script],
            env={"KERNEL": self.releases[0], "VERSION": self.version},
            upper=self.upper,
            share=[REPOSITORY],
            timeout=timeout_s,
        )

    def succeed(self, script: str, timeout_s: float = 400) -> str:
        """Run a script that must succeed and return what it printed."""
        done = self.run(f"set -e; {script}", timeout_s)
        assert done.status == 0, f"{script}\n{done.output}"
        return done.output

    def module(self, kernel: str, name: str) -> str:
        """Return the file that a kernel finds for a module."""
        return self.succeed(f"modinfo -k {kernel} -n {name}").strip()


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
        [REPOSITORY / "packaging/deb", *([version] if version else [])], timeout=BUILD_TIMEOUT_S
    )
    assert done.status == 0, done.output
    return [REPOSITORY / line for line in done.output.split() if line.endswith("_all.deb")]
