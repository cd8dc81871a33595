# SPDX-License-Identifier: GPL-2.0-only
"""The guest of the scenario ``vm``: a user-mode kernel that runs a virtual machine in QEMU."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import session
from lab import qemu, roots
from lab.kernel import cache, ensure_artifacts, ensure_kernel
from lab.sources import content_hash
from lab.variant import Variant
from nodrop.progress import Progress

_INIT = Path(qemu.__file__).with_name("vm-init")
_KERNEL = "6.12-trixie"
_MODULES = ("virtio_pci", "virtio_net")
_RECIPE = 2
_OVERHEAD_S = 90.0
"""The machine boots in each run."""


def host(variant: Variant, progress: Progress) -> session.Guest:
    """Return the guest, with a Debian kernel and an initramfs for the virtual machine.

    Raises:
        NodropError: a build failed.
    """
    del variant
    kernel = ensure_kernel(progress, "perf")
    inner = roots.ensure_kernel(_KERNEL, progress)

    def pack(temporary: Path, _final: Path) -> None:
        shutil.copy(inner.vmlinuz, temporary / "vmlinuz")
        with tempfile.TemporaryDirectory(prefix="nodrop-vm-") as scratch:
            packed = qemu.pack_initramfs(inner.modules, _MODULES, _INIT, Path(scratch))
            shutil.copy(packed, temporary)

    inputs = (_RECIPE, inner.root.key, inner.release, content_hash(_INIT), _MODULES)
    files = cache.Cache("vm", keep=2).get(cache.digest(*inputs), pack)
    guest = session.in_user_mode(kernel, ensure_artifacts(kernel, progress), {"LAB_VM": str(files)})
    return replace(guest, overhead_s=_OVERHEAD_S)
