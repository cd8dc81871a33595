# SPDX-License-Identifier: GPL-2.0-only
"""Builds what a guest loads and runs: driver variants, benchmark modules, traffic programs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import cache, other
from lab.kernel.kbuild import Kernel, make
from nodrop.errors import NodropError
from nodrop.progress import Progress

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 300.0

_RECIPE = 2
_STOCK = (
    "drivers/net/tun.ko",
    "drivers/vhost/vhost_net.ko",
    "drivers/vhost/vhost.ko",
    "drivers/vhost/vhost_iotlb.ko",
    "lib/kunit/kunit.ko",
)
_STOCK_TAP = (
    "drivers/net/tap.ko",
    "drivers/net/macvlan.ko",
    "drivers/net/macvtap.ko",
    "drivers/net/ipvlan/ipvlan.ko",
    "drivers/net/ipvlan/ipvtap.ko",
)
"""Copied if the flavour has them."""
_PRODUCTS = {".o", ".ko", ".cmd", ".pyc", ".order", ".symvers"}


@dataclass(frozen=True)
class Artifacts:
    """Directories that a guest needs besides its kernel.

    Attributes:
        modules: ``stock/*.ko``, ``nodrop/*.ko``, ``kreader.ko``, ``kspinner.ko`` (NODROP_MODULES);
            ``old/*.ko`` if they were asked for.
        bin: the traffic programs (NODROP_BIN).
    """

    modules: Path
    bin: Path


def content_hash(*trees: Path) -> str:
    """Return a hash of the names, modes and contents of all source files in directories."""
    total = hashlib.sha256()
    for tree in trees:
        for path in sorted(tree.rglob("*")):
            inside = path.relative_to(tree)
            hidden = any(part.startswith(".") for part in inside.parts)
            if hidden or path.suffix in _PRODUCTS or not path.is_file():
                continue
            mode = path.stat().st_mode & 0o111
            total.update(f"{tree.name}/{inside}\0{mode}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def copy_modules(files: Iterable[Path], place: Path) -> None:
    """Copy files into a directory, created if missing."""
    place.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy(path, place)


def ensure_artifacts(kernel: Kernel, progress: Progress, old: str = "") -> Artifacts:
    """Return the modules and programs for a kernel, built if the cache has none.

    Args:
        old: the commit of the modules in ``old/``; empty: there is no ``old/``.

    Raises:
        NodropError: a part of the repository is missing or fails to build.
    """
    kmod, traffic = REPOSITORY / "kmod", REPOSITORY / "guestlib/traffic"
    for tree in (kmod, traffic):
        if not (tree / "Makefile").exists():
            raise NodropError(
                f"{tree} has no Makefile.", "Run nodrop from a complete clone of its repository."
            )
    key = cache.digest(_RECIPE, kernel.build_id, content_hash(kmod, traffic), old)
    store = cache.Cache("artifacts", keep=16)

    def build(temporary: Path, _final: Path) -> None:
        modules, programs = temporary / "modules", temporary / "bin"
        work = temporary / "work"
        ours = {"nodrop": kmod}
        if old:
            ours["old"] = other.unpack(old, work / "other")
        target = [f"KSRC={kernel.source}", f"KOBJ={kernel.objtree}", "ARCH=um"]
        steps = (
            *(
                (f"{name}'s modules", tree, [*target, f"OUT={work / name}"])
                for name, tree in ours.items()
            ),
            ("the benchmarks' modules", traffic, [*target, f"OUT={work / 'reader'}", "kreader"]),
            ("the traffic programs", traffic, [f"OUT={programs}", "programs", "ciphers"]),
        )
        for what, tree, arguments in steps:
            with progress.step(f"Build {what}"):
                make(
                    ["-C", str(tree), *arguments],
                    what=what.capitalize(),
                    scratch=temporary,
                    timeout=BUILD_TIMEOUT_S,
                )
        copy_modules((kernel.objtree / name for name in _STOCK), modules / "stock")
        taps = (kernel.objtree / name for name in _STOCK_TAP)
        copy_modules((path for path in taps if path.exists()), modules / "stock")
        for name in ours:
            copy_modules((work / name).glob("*.ko"), modules / name)
        copy_modules((work / "reader").glob("*.ko"), modules)
        needed = [f"{name}/{file}.ko" for name in ours for file in ("nodrop", "tun", "vhost_net")]
        for name in (*needed, "kreader.ko", "kspinner.ko"):
            if not (modules / name).exists():
                raise NodropError(f"The build of {name} succeeded but left no such file.")
        shutil.rmtree(work)

    entry = store.get(key, build)
    return Artifacts(modules=entry / "modules", bin=entry / "bin")
