# SPDX-License-Identifier: GPL-2.0-only
"""Debian's arm64 kernels: nodrop's modules compiled for them here, and one of them to boot.

dkms/fit compiles in an amd64 root of the release, with the release's cross compiler and the headers
of arm64, and makes the same checks as on a user's machine.
"""

from __future__ import annotations

from lab import roots
from lab.machines import TOOLS, Machine
from lab.roots import Release
from lab.sources import REPOSITORY, content_hash
from nodrop.errors import NodropError
from nodrop.progress import Progress

ARM64 = "arm64"
_CROSS = (
    *("binutils", "gcc-aarch64-linux-gnu", "kmod", "libc6-dev-arm64-cross", "linux-base", "make"),
    *("perl", "python3", "xz-utils"),
)
BUILT = {
    "6.1": Release("bookworm", ("6.1",), _CROSS, foreign=ARM64),
    "6.12": Release("trixie", ("6.12",), _CROSS, foreign=ARM64),
}
"""Roots in which modules are compiled for a kernel of arm64: Debian 12's and 13's own."""
BOOTED = Release(
    "trixie",
    ("6.12",),
    (
        *("base-files", "bash", "busybox-static", "coreutils", "dash", "ethtool", "grep"),
        *("iproute2", "iputils-ping", "kmod", "linux-image-arm64", "mount", "procps"),
        *("python3", "sed", "util-linux"),
    ),
    architecture=ARM64,
)
_BUILD = """\
export ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-
mkdir -p {tools}/modules/nodrop
{repository}/dkms/fit {release} {tools}/modules/nodrop
make -C {repository}/guestlib/traffic KOBJ=/lib/modules/{release}/build OUT={tools}/modules kreader
rm -r {tools}/modules/kreader-build
make -C {repository}/guestlib/traffic CC=aarch64-linux-gnu-gcc OUT={tools}/bin \\
	{tools}/bin/vhost_client
"""


def ensure_built(name: str, progress: Progress) -> tuple[str, roots.Layer]:
    """Return a kernel's release, and the layer with nodrop's modules and the tests' tools for it.

    Raises:
        NodropError: the modules do not compile, or do not fit the kernel.
    """
    kernel = roots.kernel_of(BUILT[name], name, progress)
    script = _BUILD.format(repository=REPOSITORY, release=kernel.release, tools=TOOLS)
    trees = (REPOSITORY / tree for tree in ("dkms", "kmod", "guestlib/traffic"))
    with progress.step(f"Compile nodrop's modules for {kernel.release}"):
        layer = roots.ensure_layer(
            kernel.root, script, inputs=[content_hash(*trees)], share=[REPOSITORY]
        )
    return kernel.release, layer


def ensure_machine(progress: Progress) -> Machine:
    """Return a machine of arm64 with nodrop's modules, not yet loaded, and the tests' tools.

    Raises:
        NodropError: as ensure_built(); or the kernels of the two roots differ.
    """
    (name,) = BOOTED.kernels
    kernel = roots.kernel_of(BOOTED, name, progress)
    built, layer = ensure_built(name, progress)
    if built != kernel.release:
        raise NodropError(
            f"The modules are for {built}, but {kernel.root.path} has {kernel.release}.",
            "The mirror was updated in between: remove both roots of trixie from the lab's cache.",
        )
    return Machine(kernel, (layer.image,))
