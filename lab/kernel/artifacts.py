# SPDX-License-Identifier: GPL-2.0-only
"""Builds what a guest loads and runs: driver variants, benchmark modules, traffic programs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import cache, series
from lab.kernel.kbuild import Kernel, make
from lab.kernel.source import fingerprint
from lab.sources import REPOSITORY, content_hash, git
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress

BUILD_TIMEOUT_S = 300.0
UNPACK_S = 60.0

_RECIPE = 2
_STOCK = (
    "drivers/net/tun.ko",
    "drivers/vhost/vhost_net.ko",
    "drivers/vhost/vhost.ko",
    "drivers/vhost/vhost_iotlb.ko",
    "lib/kunit/kunit.ko",
    "drivers/net/tap.ko",
    "drivers/net/macvlan.ko",
    "drivers/net/macvtap.ko",
    "drivers/net/ipvlan/ipvlan.ko",
    "drivers/net/ipvlan/ipvtap.ko",
)
"""Copied if they are modules of the flavour."""


@dataclass(frozen=True)
class Artifacts:
    """Directories that a guest needs besides its kernel.

    Attributes:
        modules: ``stock/*.ko``, ``kreader.ko``, ``kspinner.ko`` (LAB_MODULES); ``nodrop/*.ko`` if
            the kernel lacks series/flow; ``series/*.ko`` if it has no patch of series/ and its tun
            is a module; ``old/*.ko`` if they were asked for.
        bin: the traffic programs (LAB_BIN).
    """

    modules: Path
    bin: Path


def copy_modules(files: Iterable[Path], place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy(path, place)


def ensure_artifacts(kernel: Kernel, progress: Progress, old: str = "") -> Artifacts:
    """Return the modules and programs for a kernel, built if the cache has none.

    Args:
        old: the commit of the modules in ``old/``; empty: there is no ``old/``.
    """
    kmod, dkms, traffic = (REPOSITORY / name for name in ("kmod", "dkms", "guestlib/traffic"))
    for tree in (kmod, traffic):
        if not (tree / "Makefile").exists():
            raise NodropError(
                f"{tree} has no Makefile.", "Run nodrop from a complete clone of its repository."
            )
    key = cache.digest(_RECIPE, kernel.build_id, content_hash(kmod, dkms, traffic), old)
    store = cache.Cache("artifacts", keep=16)

    def build(temporary: Path, _final: Path) -> None:
        modules, programs = temporary / "modules", temporary / "bin"
        work = temporary / "work"
        ours = {} if series.is_in(kernel) else {"nodrop": kmod}
        if old:
            ours["old"] = unpack_commit(old, work / "other")
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
        built = (kernel.objtree / name for name in _STOCK)
        copy_modules((path for path in built if path.exists()), modules / "stock")
        for name in ours:
            copy_modules((work / name).glob("*.ko"), modules / name)
        copy_modules((work / "reader").glob("*.ko"), modules)
        tun = "tun" if (modules / "stock/tun.ko").exists() else "nodrop_tun"
        needed = [f"{name}/{file}.ko" for name in ours for file in ("nodrop", tun, "vhost_net")]
        for name in (*needed, "kreader.ko", "kspinner.ko"):
            if not (modules / name).exists():
                raise NodropError(f"The build of {name} succeeded but left no such file.")
        shutil.rmtree(work)

    entry = store.get(key, build)
    if (entry / "modules/stock/tun.ko").exists() and series.fits(kernel):
        entry = _with_series(kernel, entry, progress)
    return Artifacts(modules=entry / "modules", bin=entry / "bin")


def _with_series(kernel: Kernel, base: Path, progress: Progress) -> Path:
    """Return an entry of the cache with series' modules besides those of another entry."""

    def build(temporary: Path, _final: Path) -> None:
        for name in ("modules", "bin"):
            shutil.copytree(base / name, temporary / name)
        work = temporary / "work"
        copy_modules(series.build(kernel, work, temporary, progress), temporary / "modules/series")
        shutil.rmtree(work)

    key = cache.digest(base.name, fingerprint(series.folders()), content_hash(series.COMPAT))
    return cache.Cache("artifacts-series", keep=16).get(key, build)


def resolve_commit(commit: str) -> str:
    """Return the full hash of a commit that has modules.

    Raises:
        NodropError: this clone has no such commit, or the commit no modules.
    """
    commit_hash = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if not commit_hash or not git("ls-tree", commit_hash, "kmod/Makefile"):
        raise NodropError(
            f"{commit} is no commit with modules.",
            "Name one of this clone's that has kmod/Makefile.",
        )
    return commit_hash


def unpack_commit(commit: str, directory: Path) -> Path:
    """Write a commit's modules below a new directory; return where they are."""
    directory.mkdir(parents=True)
    archive = directory / "kmod.tar"
    scripts = ["dkms"] if git("ls-tree", commit, "dkms") else []  # older commits: in kmod
    git("archive", "-o", str(archive), commit, "kmod", *scripts)
    done = proc.run(["tar", "-C", str(directory), "-xf", str(archive)], timeout=UNPACK_S)
    if done.status:
        raise NodropError(f"Cannot unpack the modules of {commit}: {proc.tail(done.output, 1)}")
    return directory / "kmod"
