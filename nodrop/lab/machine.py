# SPDX-License-Identifier: GPL-2.0-only
"""A Debian machine on which an administrator has installed nodrop's packages.

The packages are installed in a layer over the Debian root, so DKMS builds the modules there
with the release's own compiler, at this machine's speed. A second layer holds what only the
tests need: their kernel modules and the traffic programs, built for the same kernel.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.kernel.artifacts import REPOSITORY, content_hash
from nodrop.lab import layering, qemu
from nodrop.lab.hearing import GuestRun
from nodrop.lab.roots import DebianKernel, ensure_kernel
from nodrop.progress import Progress

DEB_TIMEOUT_S = 600.0
TOOLS = Path("/opt/nodrop-lab")
"""Where the tests' own modules and programs are in a machine."""

_INSTALL = """\
dpkg --install {packages}
dkms autoinstall -k {release}
test "$(modinfo -k {release} -F filename tun | cut -d / -f 5)" = updates
"""
_TOOLS = """\
make -C {traffic} OUT={tools}/bin programs
make -C {traffic} KOBJ=/lib/modules/{release}/build OUT={tools}/modules kreader
rm -rf {tools}/modules/kreader-build
"""


@dataclass(frozen=True)
class Machine:
    """A Debian kernel with nodrop installed and the tests' tools beside it.

    Attributes:
        kernel: what it runs.
        layers: images over the kernel's root, the topmost last.
        packages: the nodrop packages that were installed.
    """

    kernel: DebianKernel
    layers: tuple[Path, ...]
    packages: tuple[Path, ...]

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        out: Path,
        timeout: float = 120.0,
        memory: str = "2G",
        env: Mapping[str, str] | None = None,
        append: Sequence[str] = (),
        on_line: Callable[[str], None] | None = None,
    ) -> GuestRun:
        """Boot it, run a command, wait for its end; see :func:`nodrop.lab.qemu.run`."""
        tools = {
            "NODROP_MODULES": f"{TOOLS}/modules",
            "NODROP_BIN": f"{TOOLS}/bin",
            "PYTHONPATH": str(REPOSITORY),
        }
        return qemu.run(
            self.kernel,
            argv,
            out=out,
            layers=self.layers,
            share=[REPOSITORY],
            timeout=timeout,
            memory=memory,
            env=tools | dict(env or {}),
            append=append,
            on_line=on_line,
        )


def build_packages(progress: Progress) -> tuple[Path, ...]:
    """Build nodrop's Debian packages, as ``make deb`` does, and return their files.

    Raises:
        NodropError: the build failed.
    """
    folder = REPOSITORY / "out/deb"
    with progress.step("Build nodrop's packages"):
        result = proc.run(["make", "-C", REPOSITORY, "deb"], timeout=DEB_TIMEOUT_S)
    if result.status != 0:
        raise NodropError("nodrop's packages cannot be built.", proc.tail(result.output))
    return tuple(sorted(folder.glob("*.deb")))


def ensure_machine(name: str, packages: Sequence[Path], progress: Progress) -> Machine:
    """Return a machine with packages installed; from the cache when it was there before.

    Args:
        name: the kernel's series, such as "6.12".
        packages: nodrop-dkms is installed, others are left aside.

    Raises:
        NodropError: there is no such kernel, or the packages do not install.
    """
    kernel = ensure_kernel(name, progress)
    chosen = [path.resolve() for path in packages if path.name.startswith("nodrop-dkms_")]
    if not chosen:
        raise NodropError("nodrop-dkms was not built.", "make deb builds it.")
    install = _INSTALL.format(
        packages=" ".join(map(str, chosen)),
        release=kernel.release,
    )
    traffic = REPOSITORY / "traffic"
    tools = _TOOLS.format(traffic=traffic, tools=TOOLS, release=kernel.release)
    with progress.step(f"Install nodrop for {kernel.release}"):
        layers = (
            layering.ensure_layer(
                kernel.root,
                install,
                inputs=[_digest(path) for path in chosen],
                share=[path.parent for path in chosen],
            ),
            layering.ensure_layer(
                kernel.root, tools, inputs=[content_hash(traffic)], share=[traffic]
            ),
        )
    return Machine(kernel, layers, tuple(chosen))


def _digest(package: Path) -> str:
    return hashlib.sha256(package.read_bytes()).hexdigest()
