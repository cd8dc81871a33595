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
_KICK = [REPOSITORY / "kmod/flow" / name for name in ("kick.c", "internal.h", "nodrop_flow.h")]
"""What it shares with nodrop."""
MODULES = ("series_compat.ko", "tun.ko", "vhost_net.ko")

_DRIVERS = ("drivers/net/tun.c", "drivers/vhost/net.c", "drivers/vhost/vhost.h")
_KERNELS_OWN = ("include/net/sch_generic.h",)
"""Headers whose structures the running kernel has without the patches."""
_TOUCHED = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)$", re.MULTILINE)
# sparse 0.6.4 lacks the first, and cannot compute the second.
_SPARSE = "-D__typeof_unqual__=__typeof__ '-D__builtin_strlen(s)=(sizeof(s)-1)'"
_REPORTS = re.compile(r"^.*\b(?:warning|error): .*$", re.MULTILINE)


def folders() -> list[str]:
    """Return those of FOLDERS that have patches."""
    return [name for name in FOLDERS if any((REPOSITORY / name).glob("0*.patch"))]


def all_patches() -> list[Path]:
    return patches(folders())


def fits(kernel: Kernel) -> bool:
    """Return whether the kernel has none of the patches, so that these modules can be built."""
    return not {*FOLDERS} & {*kernel.patches}


def is_in(kernel: Kernel) -> bool:
    """Return whether the kernel's drivers are the patched ones, which nodrop's hooks do not fit."""
    return FOLDERS[-1] in kernel.patches


def touched(files: list[Path]) -> list[str]:
    """Return the files that patches change or add."""
    texts = [path.read_text(encoding="utf-8") for path in files]
    return sorted({name for text in texts for name in _TOUCHED.findall(text)})


def write_added(name: Path, place: Path) -> None:
    """Write a file that a patch adds below a directory."""
    for path in all_patches():
        before, marker, rest = path.read_text(encoding="utf-8").partition(f"\n+++ b/{name}\n")
        if marker and before.endswith("\n--- /dev/null"):
            lines = rest.partition("\ndiff --git ")[0].splitlines()
            text = "\n".join(line[1:] for line in lines if line.startswith("+"))
            (place / name).write_text(text + "\n", encoding="utf-8")


def patched(source: Path, place: Path, files: list[Path], more: list[str]) -> None:
    """Copy the files that patches change, and more, and patch the copies.

    Args:
        source: the kernel's source; not changed.
        place: an existing empty directory.
        files: the patches.
        more: other files, relative to the source.

    Raises:
        NodropError: a patch does not apply.
    """
    for name in {*touched(files), *more}:
        if (source / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, place / name)
    apply(files, place)


def _drivers(source: Path) -> list[str]:
    return [*_DRIVERS, *(str(p.relative_to(source)) for p in source.glob("drivers/net/tun_*.h"))]


def _lay(tree: Path, place: Path, files: list[Path], kernels_own: tuple[str, ...]) -> None:
    """Copy patched drivers into one directory, and patched headers into its ``include``."""
    place.mkdir(parents=True, exist_ok=True)
    for path in (*(tree / name for name in _DRIVERS), *tree.glob("drivers/net/tun_*.h")):
        shutil.copy(path, place)
    for name in touched(files):
        if name.startswith("include/") and name not in kernels_own:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tree / name, place / name)


def build(kernel: Kernel, work: Path, scratch: Path, progress: Progress) -> list[Path]:
    """Build the patched drivers for a kernel; return the modules.

    Args:
        work: a directory to build in, which does not exist.
        scratch: for the compiler's temporary files.
    """
    tree, modules = work / "tree", work / "modules"
    tree.mkdir(parents=True)
    files = all_patches()
    patched(kernel.source, tree, files, _drivers(kernel.source))
    shutil.copytree(COMPAT, modules)
    for path in _KICK:
        shutil.copy(path, modules)
    _lay(tree, modules, files, _KERNELS_OWN)
    with progress.step("Build the patched drivers"):
        make(
            ["-C", str(kernel.objtree), "ARCH=um", f"M={modules}", "modules"],
            what="The patched drivers",
            scratch=scratch,
        )
    return [modules / name for name in MODULES]


def compiled(kernel: Kernel, files: list[Path], work: Path) -> list[str]:
    """Compile all C files that patches change, with all warnings and sparse; return the reports.

    Args:
        files: the first patches of the series.
        work: an existing empty directory.

    Raises:
        NodropError: a patch does not apply, or a file does not compile.
    """
    tree, place = work / "tree", work / "objects"
    tree.mkdir()
    others = [
        Path(name)
        for name in touched(files)
        if name.endswith(".c") and name not in _DRIVERS and not name.startswith("tools/")
    ]
    places = {name.parent for name in others}
    headers = [p for folder in places for p in (kernel.source / folder).glob("*.h")]
    more = [*_drivers(kernel.source), *(str(p.relative_to(kernel.source)) for p in headers)]
    patched(kernel.source, tree, files, more)
    _lay(tree, place, files, ())
    (place / "include").mkdir(exist_ok=True)
    for path in (
        *(tree / name for name in others),
        *(p for f in places for p in tree.glob(f"{f}/*.h")),
    ):
        shutil.copy(path, place)
    objects = [f"{name.stem}.o" for name in others]
    lines = [
        "LINUXINCLUDE := -I$(src)/include $(LINUXINCLUDE)",
        "obj-m += tun.o vhost_net.o",
        f"obj-y += {' '.join(objects)}",
        "vhost_net-y := net.o",
    ]
    (place / "Kbuild").write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = work / "log"
    make(
        [
            *("-C", str(kernel.objtree), "ARCH=um", f"M={place}", "W=1", "C=2", f"CF={_SPARSE}"),
            *("tun.o", "vhost_net.o", *objects),
        ],
        what=f"The tree with {files[-1].name}" if files else "The tree",
        scratch=work,
        log=log,
    )
    text = log.read_text(encoding="utf-8")
    if "CHECK" not in text and shutil.which("sparse"):
        return ["sparse checked nothing"]
    return _REPORTS.findall(text)
