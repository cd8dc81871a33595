# SPDX-License-Identifier: GPL-2.0-only
"""The patched drivers of series/, as modules for a kernel without the patches.

So stock's drivers, which are the kernel's own, and the patched ones run in the same guest. What the
patches add to the kernel itself, series/compat has as a module.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lab.kernel.kbuild import Kernel, make
from lab.kernel.source import apply, patches
from lab.sources import REPOSITORY
from nodrop.progress import Progress

FOLDERS = ("series/fixes", "series/flow")
"""Of patches, in order."""
COMPAT = REPOSITORY / "series/compat"
MODULES = ("series_compat.ko", "tun.ko", "vhost_net.ko")

_DRIVERS = ("drivers/net/tun.c", "drivers/vhost/net.c", "drivers/vhost/vhost.h")
_HEADERS = ("drivers/net/tun_*.h",)
_KERNELS_OWN = ("include/net/sch_generic.h",)
"""Headers whose structures the running kernel has without the patches."""
_TOUCHED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)$", re.MULTILINE)


def folders() -> list[str]:
    """Return those of FOLDERS that have patches."""
    return [name for name in FOLDERS if any((REPOSITORY / name).glob("0*.patch"))]


def fits(kernel: Kernel) -> bool:
    """Return whether the kernel lacks the patches, so that these modules are of use."""
    return not (kernel.source / "drivers/net/tun_backpressure.h").exists()


def patched(source: Path, place: Path) -> list[str]:
    """Copy the files that the patches and the modules need, and patch the copies.

    Args:
        source: the kernel's source; not changed.
        place: an existing empty directory.

    Returns:
        the files that the patches change or add.

    Raises:
        NodropError: a patch does not apply.
    """
    files = patches(folders())
    texts = [path.read_text(encoding="utf-8") for path in files]
    touched = sorted({name for text in texts for name in _TOUCHED.findall(text)})
    drivers = [*_DRIVERS, *(str(p.relative_to(source)) for g in _HEADERS for p in source.glob(g))]
    for name in {*touched, *drivers}:
        if (source / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, place / name)
    apply(files, place)
    return touched


def build(kernel: Kernel, work: Path, scratch: Path, progress: Progress) -> list[Path]:
    """Build the patched drivers for a kernel; return the modules.

    Args:
        work: a directory to build in, which does not exist.
        scratch: for the compiler's temporary files.
    """
    tree, modules = work / "tree", work / "modules"
    tree.mkdir(parents=True)
    touched = patched(kernel.source, tree)
    shutil.copytree(COMPAT, modules)
    for name in _DRIVERS:
        shutil.copy(tree / name, modules)
    for header in tree.glob("drivers/net/tun_*.h"):
        shutil.copy(header, modules)
    for name in touched:
        if name.startswith("include/") and name not in _KERNELS_OWN and (tree / name).exists():
            (modules / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / name, modules / name)
    with progress.step("Build the patched drivers"):
        make(
            ["-C", str(kernel.objtree), "ARCH=um", f"M={modules}", "modules"],
            what="The patched drivers",
            scratch=scratch,
        )
    return [modules / name for name in MODULES]
