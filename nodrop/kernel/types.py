# SPDX-License-Identifier: GPL-2.0-only
"""What the rest of the project knows of a built kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted and that modules can be built for.

    Attributes:
        linux: the User-Mode Linux program.
        release: what ``uname -r`` says in it.
        source: its source tree (KSRC), never written to.
        objtree: its object tree (KOBJ).
        build_id: names all that went into it; equal ids, equal kernels.
        package: the Debian package, its version and its suite.
        arguments: what its command line has besides.
        preload: a library that User-Mode Linux is started with (LD_PRELOAD); None: without.
    """

    linux: Path
    release: str
    source: Path
    objtree: Path
    build_id: str
    package: str
    arguments: tuple[str, ...] = ()
    preload: Path | None = None


@dataclass(frozen=True)
class Artifacts:
    """What a guest needs beside the kernel.

    Attributes:
        modules: ``stock/*.ko``, ``nodrop/*.ko``, ``kreader.ko`` (NODROP_MODULES).
        bin: the traffic programs (NODROP_BIN).
    """

    modules: Path
    bin: Path
