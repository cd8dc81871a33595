# SPDX-License-Identifier: GPL-2.0-only
"""Loads the drivers of a variant, and the modules that depend on them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guestlib.failure import GuestError, Unsupported
from guestlib.process import tool
from guestlib.timing import time_limit
from lab.variant import OURS, Variant

IFF_BACKPRESSURE = 0x0080
"""The flag that requests flow control from upstream's driver, since Linux 7.3."""

READER = "kreader.ko"
"""The benchmarks' module that uses tun.ko of any variant."""

OPTIONAL = "stock/tap.ko"
"""vhost_net.ko depends on it if the kernel has macvtap."""

TAP_DRIVERS = ("stock", "nodrop")
"""Variants that have a tap.ko."""

UNLOAD_TIMEOUT_S = 20.0
"""Removing 500 devices takes seconds on a debug kernel of a busy machine."""


def module_dir(variant: Variant) -> str:
    """Return the directory in NODROP_MODULES with a variant's tun.ko."""
    return str(variant) if variant in OURS else "stock"


def device_flags(variant: Variant) -> int:
    """Return the IFF_ flags with which a variant's application opens its device.

    Only upstream's driver needs one; nodrop's flow control is on by default.
    """
    return IFF_BACKPRESSURE if variant is Variant.UPSTREAM else 0


@contextmanager
def awake_cpus(modules: Path) -> Iterator[None]:
    """Keep the CPUs from going idle during the block (guestlib/traffic/kreader/kspinner.c)."""
    tool(["insmod", str(modules / "kspinner.ko")])
    try:
        yield
    finally:
        tool(["rmmod", "kspinner"])


def modules(tun: Variant, vhost: Variant | None = None) -> list[str]:
    """Return the modules of a pair of variants, in load order.

    Args:
        tun: the variant of tun.ko.
        vhost: the variant of vhost_net.ko; None: without vhost-net.
    """
    found = [] if vhost is None else [OPTIONAL, "stock/vhost_iotlb.ko", "stock/vhost.ko"]
    if ours := next((variant for variant in OURS if variant in (tun, vhost)), None):
        found.append(f"{ours}/nodrop.ko")
    found += [f"{module_dir(tun)}/tun.ko", READER]
    if vhost is not None:
        found.append(f"{module_dir(vhost)}/vhost_net.ko")
    return found


def tap_modules(driver: str) -> list[str]:
    """Return the modules of macvtap, ipvtap and vhost_net, in load order.

    Args:
        driver: the variant of tap.ko; all others are the kernel's own.
    """
    vhost = ("vhost_iotlb", "vhost", "tun", "vhost_net")
    below, above = ("macvlan", "ipvlan"), ("macvtap", "ipvtap", *vhost)
    names = [f"stock/{name}.ko" for name in (*below, *above)]
    return [*names[:2], f"{driver}/tap.ko", *names[2:]]


def module_file(folder: Path, name: str) -> Path | None:
    """Return a module's file, possibly compressed; None if there is none.

    In a UML guest, one directory holds all modules. In a Debian guest it holds only what the tests
    have built; the kernel's own modules ("stock/") and those built by DKMS ("nodrop/") are where
    they were installed.

    Args:
        folder: NODROP_MODULES.
    """
    path = folder / name
    if path.exists():
        return path
    kind, _, file = name.rpartition("/")
    below = {"stock": "kernel", "nodrop": "updates"}.get(kind)
    if below is None or (folder / kind).is_dir():
        return None
    installed = Path("/lib/modules", os.uname().release, below)
    return next(iter(sorted(installed.rglob(f"{file}*"))), None)


class Drivers:
    """Keeps one list of modules loaded at a time.

    Args:
        folder: NODROP_MODULES.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: list[str] = []

    def use(self, tun: Variant, *, vhost: Variant | None = None) -> None:
        """Load a variant's tun.ko, kreader.ko and their dependencies; unload others first.

        Args:
            tun: the variant of tun.ko.
            vhost: the variant of vhost_net.ko; None: vhost-net is not loaded.

        Raises:
            GuestError: a module is missing, or cannot be loaded or unloaded.
        """
        self.load(modules(tun, vhost))

    def load(self, wanted: list[str]) -> None:
        """Load modules in this order; unload others first.

        Raises:
            Unsupported: this kernel has no macvtap.
            GuestError: a module is missing, or cannot be loaded or unloaded.
        """
        while self._loaded != wanted[: len(self._loaded)]:
            self._unload_last()
        for name in wanted[len(self._loaded) :]:
            path = module_file(self._folder, name)
            if path:
                tool(["insmod", str(path)])
            elif name.startswith(("stock/macv", "stock/ipv")):
                raise Unsupported(f"there is no {name}")
            elif name != OPTIONAL:
                raise GuestError(f"there is no {name}; the driver was not built")
            self._loaded.append(name)

    def unload(self) -> None:
        """Unload all modules that were loaded.

        Raises:
            GuestError: one is still in use after UNLOAD_TIMEOUT_S.
        """
        while self._loaded:
            self._unload_last()

    def _unload_last(self) -> None:
        """Unload the last module; retry, because a device may go some time after its file."""
        module = Path(self._loaded[-1]).stem
        deadline = time.monotonic() + time_limit(UNLOAD_TIMEOUT_S)
        while Path("/sys/module", module).exists():
            try:
                tool(["rmmod", module])
            except GuestError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self._loaded.pop()
