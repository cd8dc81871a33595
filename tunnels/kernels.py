# SPDX-License-Identifier: GPL-2.0-only
"""What the measurements boot: x86 kernels without and with the patches, and kmeter.ko."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import Kernel, cache, kconfig
from lab.kernel.artifacts import copy_modules
from lab.kernel.kbuild import make, toolchain
from lab.kernel.source import ensure_patched, ensure_source, fingerprint
from lab.roots import DebianKernel, ensure_kernel
from lab.sources import content_hash
from nodrop.progress import Progress

PATCHES = {
    "clean": [],
    "series": kconfig.FLAVOURS["tunnel"].patches,
    "switched": kconfig.FLAVOURS["tunnel-ab"].patches,
}
"""Name of an x86 kernel -> its directories of patches; the last has a switch for each part."""
_FRAGMENTS = ("common", "tests", "perf", "tunnel")
_HERE = Path(__file__).parent
_KMETER = _HERE / "kmeter"
_RECIPE = 1
_ROOT = "7.3"


@dataclass(frozen=True)
class PatchedKernel(DebianKernel):
    """A kernel of our own for a Debian root.

    Attributes:
        files: directory with bzImage, kmeter.ko, and modules.dep for the initramfs.
    """

    files: Path

    @property
    def vmlinuz(self) -> Path:
        return self.files / "bzImage"

    @property
    def modules(self) -> Path:
        """A directory without modules: the kernel has built in what the root needs."""
        return self.files


def _make_kmeter(objtree: Path, arch: str, temporary: Path) -> None:
    # An external module is built in its source directory.
    copy = temporary / "kmeter"
    shutil.copytree(_KMETER, copy)
    arguments = ["-C", str(objtree), f"ARCH={arch}", f"M={copy}", "modules"]
    make(arguments, what="kmeter", scratch=temporary)
    copy_modules([copy / "kmeter.ko"], temporary)
    shutil.rmtree(copy)


def ensure_kmeter(kernel: Kernel, progress: Progress) -> Path:
    """Return a directory with kmeter.ko for a User-Mode Linux, built if the cache has none.

    Raises:
        NodropError: the build failed.
    """

    def build(temporary: Path, _final: Path) -> None:
        with progress.step("Build kmeter"):
            _make_kmeter(kernel.objtree, "um", temporary)

    key = cache.digest(_RECIPE, kernel.build_id, content_hash(_KMETER))
    return cache.Cache("kmeter", keep=4).get(key, build)


def ensure_x86(name: str, progress: Progress) -> PatchedKernel:
    """Return a kernel, built if the cache has none.

    Args:
        name: a key of PATCHES.

    Raises:
        NodropError: a patch does not apply, or the build failed.
    """
    folders = PATCHES[name]
    own = (_HERE / "x86.config").read_text(encoding="utf-8")
    wanted = kconfig.parse(kconfig.fragments(*_FRAGMENTS) + own)
    source = ensure_patched(ensure_source(progress), folders, progress)
    inputs = [_RECIPE, source.sha256, str(source.tree), wanted, toolchain()]
    key = cache.digest(*inputs, fingerprint(folders), content_hash(_KMETER))

    def build(temporary: Path, _final: Path) -> None:
        objtree = temporary / "obj"
        objtree.mkdir()
        fragment = temporary / "wanted.config"
        fragment.write_text(kconfig.render(wanted), encoding="utf-8")
        common = ["-C", str(source.tree), "ARCH=x86_64", f"O={objtree}"]
        configure = [*common, f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"]
        with progress.step(f"Build the x86 kernel ({name})"):
            for arguments in (configure, [*common, "bzImage", "modules"]):
                make(arguments, what="The x86 kernel", scratch=temporary)
                kconfig.check(wanted, (objtree / ".config").read_text(encoding="utf-8"))
            _make_kmeter(objtree, "x86_64", temporary)
        shutil.copy(objtree / "arch/x86/boot/bzImage", temporary)
        (temporary / "modules.dep").touch()
        shutil.rmtree(objtree)

    entry = cache.Cache("tunnels", keep=2 * len(PATCHES)).get(key, build)
    root = ensure_kernel(_ROOT, progress)
    return PatchedKernel(root.name, root.release, root.root, entry)
