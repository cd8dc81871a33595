# SPDX-License-Identifier: GPL-2.0-only
"""Loads the driver of a variant, and the modules that use it on top."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodrop.guest.command import tool
from nodrop.guest.failure import GuestError
from nodrop.guest.plan import Variant

IFF_BACKPRESSURE = 0x0080
"""The flag that asks upstream's driver for flow control, since Linux 7.3."""

ON_TOP = ("kreader", "kforwarder")
"""Our modules that use tun.ko, whichever it is."""

UNLOAD_TIMEOUT_S = 5.0


def module_dir(variant: Variant) -> str:
    """Return the directory, below the modules', that holds a variant's tun.ko."""
    return "nodrop" if variant is Variant.NODROP else "stock"


def device_flags(variant: Variant) -> int:
    """Return the IFF_ flags with which a variant's application opens its device.

    Only upstream's driver must be asked; nodrop's is on for everybody.
    """
    return IFF_BACKPRESSURE if variant is Variant.UPSTREAM else 0


def flag_words(variant: Variant) -> str:
    """Return the same for the traffic programs' ``--flags``."""
    return "backpressure" if variant is Variant.UPSTREAM else ""


@contextmanager
def awake_cpus(modules: Path) -> Iterator[None]:
    """Keep the CPUs from going idle for the block (traffic/kreader/kspinner.c)."""
    tool(["insmod", str(modules / "kspinner.ko")])
    try:
        yield
    finally:
        tool(["rmmod", "kspinner"])


class Drivers:
    """Keeps one variant loaded at a time.

    Args:
        modules: the directory of NODROP_MODULES.
    """

    def __init__(self, modules: Path) -> None:
        self._modules = modules
        self._loaded: str | None = None

    def use(self, variant: Variant) -> None:
        """Load a variant's tun.ko and what uses it, unloading another's first.

        Raises:
            GuestError: a module is missing, does not load, or does not go.
        """
        wanted = module_dir(variant)
        if self._loaded == wanted:
            return
        self.unload()
        path = self._modules / wanted / "tun.ko"
        if not path.exists():
            raise GuestError(f"there is no {wanted}/tun.ko; the driver was not built")
        tool(["insmod", str(path)])
        self._loaded = wanted
        for module in ON_TOP:
            tool(["insmod", str(self._modules / f"{module}.ko")])

    def unload(self) -> None:
        """Unload all of them.

        Raises:
            GuestError: one is still in use after UNLOAD_TIMEOUT_S seconds.
        """
        if self._loaded is None:
            return
        for module in (*ON_TOP, "tun"):
            self._remove(module)
        self._loaded = None

    def _remove(self, module: str) -> None:
        """A device's last references go a moment after its file; so try again."""
        deadline = time.monotonic() + UNLOAD_TIMEOUT_S
        while Path("/sys/module", module).exists():
            try:
                tool(["rmmod", module])
            except GuestError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
