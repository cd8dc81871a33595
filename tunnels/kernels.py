# SPDX-License-Identifier: GPL-2.0-only
"""What the scenarios boot: kernels without and with the patches, in user mode and for x86."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import session
from lab import qemu, roots
from lab.kernel import Artifacts, cache, ensure_kernel, kconfig
from lab.kernel.artifacts import copy_modules
from lab.kernel.kbuild import make, toolchain
from lab.kernel.source import ensure_patched, ensure_source, fingerprint
from lab.sources import REPOSITORY, content_hash
from lab.variant import Variant
from nodrop.progress import Progress

_FAULTS = "tunnels/patches/faults"
PATCHES = {
    Variant.STOCK: [],
    Variant.SERIES: [name for name in kconfig.FLAVOURS["tunnel"].patches if name != _FAULTS],
}
"""Variant -> the directories of patches of its x86 kernel."""
_FRAGMENTS = ("common", "perf", "tunnel")
_HERE = Path(__file__).parent
_KMETER = _HERE / "kmeter"
_RECIPE = 3
_ROOT = "7.3"


@dataclass(frozen=True)
class PatchedKernel(roots.DebianKernel):
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


def switched(_variant: Variant, progress: Progress) -> session.Guest:
    """Return the guest in user mode whose cache can take a reference for each packet.

    Raises:
        NodropError: a build failed.
    """
    kernel = ensure_kernel(progress, "tunnel")

    def build(temporary: Path, _final: Path) -> None:
        with progress.step("Build kmeter"):
            _make_kmeter(kernel.objtree, "um", temporary)

    key = cache.digest(_RECIPE, kernel.build_id, content_hash(_KMETER))
    entry = cache.Cache("kmeter", keep=2).get(key, build)
    return session.in_user_mode(kernel, Artifacts(modules=entry, bin=entry))


def counted(variant: Variant, progress: Progress) -> session.Guest:
    """Return the guest of a variant's x86 kernel in QEMU, which counts instructions.

    Raises:
        NodropError: a patch does not apply, or the build failed.
    """
    folders = PATCHES[variant]
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
        with progress.step(f"Build the x86 kernel ({variant})"):
            for arguments in (configure, [*common, "bzImage", "modules"]):
                make(arguments, what="The x86 kernel", scratch=temporary)
                kconfig.check(wanted, (objtree / ".config").read_text(encoding="utf-8"))
            _make_kmeter(objtree, "x86_64", temporary)
        for name in ("arch/x86/boot/bzImage", "include/config/kernel.release"):
            shutil.copy(objtree / name, temporary)
        (temporary / "modules.dep").touch()
        shutil.rmtree(objtree)

    entry = cache.Cache("tunnels", keep=2 * len(PATCHES)).get(key, build)
    root = roots.ensure_kernel(_ROOT, progress)
    release = (entry / "kernel.release").read_text(encoding="ascii").strip()
    env = {"LAB_MODULES": str(entry), "LAB_BIN": "", "PYTHONPATH": str(REPOSITORY)}
    kernel = PatchedKernel(root.name, release, root.root, entry)
    run = partial(qemu.run, kernel, share=[REPOSITORY, entry], env=env)
    return session.counting(run, release, source.package, entry.name)
