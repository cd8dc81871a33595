# SPDX-License-Identifier: GPL-2.0-only
"""Where the files of the kernel modules are: in the lab's folder, or installed."""

from __future__ import annotations

import os
from pathlib import Path

MODULES = Path("/lib/modules")


class ModuleFiles:
    """Finds modules by the names that :mod:`lab.guest.drivers` has for them.

    The lab of User-Mode Linux hands over one folder with all modules in it. In a Debian
    root the folder holds what the tests have built for themselves; the kernel's own modules
    ("stock/") and those that DKMS has built ("nodrop/") are where they were installed.

    Args:
        folder: NODROP_MODULES.
        installed: the running kernel's modules; None: below /lib/modules.
    """

    def __init__(self, folder: Path, installed: Path | None = None) -> None:
        self._folder = folder
        self._installed = installed or MODULES / os.uname().release

    def find(self, name: str) -> Path | None:
        """Return a module's file, which may be compressed; None when there is none."""
        path = self._folder / name
        if path.exists():
            return path
        kind, _, file = name.rpartition("/")
        below = {"stock": "kernel", "nodrop": "updates"}.get(kind)
        if below is None or (self._folder / kind).is_dir():
            return None
        return next(iter(sorted((self._installed / below).rglob(f"{file}*"))), None)
