# SPDX-License-Identifier: GPL-2.0-only
"""Builds the modules under test such that they tell which of their code is executed.

They call kcover.ko (traffic/kreader/kcover.c) at each branch. Everything else is what
:func:`nodrop.kernel.ensure_artifacts` gives, and they are where a guest looks for the others.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from nodrop.errors import UnsupportedError
from nodrop.kernel import cache
from nodrop.kernel.artifacts import BUILD_TIMEOUT_S, REPOSITORY, content_hash, copy_modules
from nodrop.kernel.build import make
from nodrop.kernel.types import Artifacts, Kernel
from nodrop.progress import Progress

_RECIPE = 1


def ensure_covered(kernel: Kernel, artifacts: Artifacts, progress: Progress) -> Artifacts:
    """Return artifacts whose ``nodrop/*.ko`` are covered, built when the cache has none.

    Args:
        artifacts: of the same kernel; the other modules and the programs are theirs.

    Raises:
        NodropError: a build failed.
        UnsupportedError: the kernel has a coverage of its own, which ours does not go with.
    """
    kmod, traffic = REPOSITORY / "kmod", REPOSITORY / "traffic"
    key = cache.digest("covered", _RECIPE, kernel.build_id, content_hash(kmod, traffic))

    def build(temporary: Path, _final: Path) -> None:
        work, modules = temporary / "work", temporary / "modules"
        target = [f"KSRC={kernel.source}", f"KOBJ={kernel.objtree}", "ARCH=um"]
        symbols = work / "reader/kreader-build/Module.symvers"
        steps = (
            ("what sees what modules execute", traffic, [f"OUT={work / 'reader'}", "kreader"]),
            ("nodrop's modules, covered", kmod, [f"OUT={work / 'nodrop'}", f"COVER={symbols}"]),
        )
        for what, tree, arguments in steps:
            with progress.step(f"Build {what}"):
                make(
                    ["-C", str(tree), *target, *arguments],
                    what=what.capitalize(),
                    scratch=temporary,
                    timeout=BUILD_TIMEOUT_S,
                )
            if not (work / "reader/kcover.ko").exists():
                raise UnsupportedError("This kernel has KCOV, so kcover.ko is not built for it.")
        shutil.copytree(artifacts.modules, modules)
        copy_modules((work / "nodrop").glob("*.ko"), modules / "nodrop")
        copy_modules([work / "reader/kcover.ko"], modules)
        shutil.rmtree(work)

    entry = cache.Cache("artifacts", keep=16).get(key, build)
    return Artifacts(modules=entry / "modules", bin=artifacts.bin)
