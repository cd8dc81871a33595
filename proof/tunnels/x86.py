# SPDX-License-Identifier: GPL-2.0-only
"""An x86 kernel without or with the patches for tunnels, to boot in QEMU with a Debian root."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.kernel import cache, kconfig
from lab.kernel.artifacts import content_hash, copy_modules
from lab.kernel.kbuild import make, toolchain
from lab.kernel.linux_source import ensure_source
from lab.kernel.patched import REPOSITORY, ensure_patched, fingerprint
from lab.roots import DebianKernel, ensure_kernel
from nodrop.progress import Progress

PATCHES = {
    "clean": (),
    "series": kconfig.PATCHES["tunnel"],
    "switched": kconfig.PATCHES["tunnel-ab"],
}
"""Name of a kernel -> its directories of patches; the last has a switch for each part."""
_FRAGMENTS = ("common", "perf", "tunnel")
_OWN = Path(__file__).with_name("x86.config")
_TRAFFIC = REPOSITORY / "guestlib/traffic"
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
        """The file to boot."""
        return self.files / "bzImage"

    @property
    def modules(self) -> Path:
        """A directory without modules: the kernel has built in what the root needs."""
        return self.files


def ensure_x86(name: str, progress: Progress) -> PatchedKernel:
    """Return a kernel, built if the cache has none.

    Args:
        name: a key of PATCHES.

    Raises:
        NodropError: a patch does not apply, or the build failed.
    """
    folders = PATCHES[name]
    fragments = [(kconfig.CONFIGS / f"{name}.config") for name in _FRAGMENTS]
    text = "".join(path.read_text(encoding="utf-8") for path in (*fragments, _OWN))
    wanted = kconfig.parse(text)
    source = ensure_patched(ensure_source(progress), folders, progress)
    inputs = [_RECIPE, source.sha256, str(source.tree), wanted, toolchain()]
    key = cache.digest(*inputs, fingerprint(folders), content_hash(_TRAFFIC))

    def build(temporary: Path, _final: Path) -> None:
        objtree = temporary / "obj"
        objtree.mkdir()
        fragment = temporary / "wanted.config"
        fragment.write_text(kconfig.render(wanted), encoding="utf-8")
        common = ["-C", str(source.tree), "ARCH=x86_64", f"O={objtree}"]
        chosen = f"KCONFIG_ALLCONFIG={fragment}"
        meter = ["-C", str(_TRAFFIC), f"KOBJ={objtree}", f"OUT={temporary / 'traffic'}", "kreader"]
        for what, arguments in (
            ("Configure", [*common, chosen, "allnoconfig"]),
            ("Build", [*common, "bzImage", "modules"]),
            ("Build kmeter for", meter),
        ):
            with progress.step(f"{what} the x86 kernel ({name})"):
                make(arguments, what="The x86 kernel", scratch=temporary)
            kconfig.check(wanted, (objtree / ".config").read_text(encoding="utf-8"))
        shutil.copy(objtree / "arch/x86/boot/bzImage", temporary)
        copy_modules([temporary / "traffic/kmeter.ko"], temporary)
        (temporary / "modules.dep").touch()
        for folder in (objtree, temporary / "traffic"):
            shutil.rmtree(folder)

    files = cache.Cache("tunnels", keep=2 * len(PATCHES)).get(key, build)
    root = ensure_kernel(_ROOT, progress)
    return PatchedKernel(root.name, root.release, root.root, files)
