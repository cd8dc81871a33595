# SPDX-License-Identifier: GPL-2.0-only
"""Loads tap, the kernel's own or nodrop's, and macvtap, ipvtap and vhost_net with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodrop.guest.command import tool
from nodrop.guest.failure import GuestError, Unsupported
from nodrop.guest.modules import ModuleFiles

DRIVERS = ("stock", "nodrop")
BELOW = ("macvlan", "ipvlan")
ABOVE = ("macvtap", "ipvtap")
VHOST = ("vhost_iotlb", "vhost", "tun", "vhost_net")


def order(driver: str) -> Sequence[str]:
    """Return the modules of a driver in the order in which they load.

    Args:
        driver: whose tap.ko. All others are the kernel's own: none has to know.
    """
    return (
        *(f"stock/{name}" for name in BELOW),
        f"{driver}/tap",
        *(f"stock/{name}" for name in (*ABOVE, *VHOST)),
    )


def load(driver: str, folder: Path) -> None:
    """Load a driver's modules.

    Args:
        driver: one of DRIVERS.
        folder: NODROP_MODULES.

    Raises:
        Unsupported: this kernel has no macvtap; nothing is loaded.
        GuestError: a module does not load.
    """
    files = ModuleFiles(folder)
    paths: list[Path] = []
    for name in order(driver):
        path = files.find(f"{name}.ko")
        if path is None:
            raise Unsupported(f"there is no {name}.ko")
        paths.append(path)
    for path in paths:
        tool(["insmod", str(path)])


def unload(driver: str) -> None:
    """Unload what load() loaded.

    Raises:
        GuestError: one is in use.
    """
    for name in reversed(order(driver)):
        module = Path(name).name
        if not Path("/sys/module", module).exists():
            raise GuestError(f"{module} is not loaded")
        tool(["rmmod", module])
