# SPDX-License-Identifier: GPL-2.0-only
"""Loads the drivers of a variant, and the modules that depend on them.

``python -m guestlib.drivers DRIVER COMMAND...`` loads a driver and executes the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guestlib.environment import Environment, GuestError, Unsupported, wait_until
from guestlib.process import tool
from lab.variant import OURS, Variant
from nodrop.host.modules import BESIDE, MODULES
from nodrop.host.modules import tun_built_in as _tun_built_in

IFF_BACKPRESSURE = 0x0080
"""The flag that requests flow control from upstream's driver, since Linux 7.3."""

FLAGGED = (Variant.UPSTREAM, Variant.SERIES)
"""The drivers whose flow control is requested by that flag."""

READER = "kreader.ko"
"""The benchmarks' module that uses tun.ko of any variant."""

OPTIONAL = "stock/tap.ko"
"""vhost_net.ko depends on it if the kernel has macvtap."""

UNLOAD_TIMEOUT_S = 20.0
"""Removing 500 devices takes seconds on a debug kernel of a busy machine."""

LATE_MS = "600000"
"""A guard_ms longer than any wait of a test: the stall guard would hide a missing wake."""
GUARDS = tuple(Path(f"/sys/module/{name}/parameters/guard_ms") for name in ("nodrop", "tap"))

NOT_FOUND = 127


def module_dir(variant: Variant) -> str:
    """Return the directory in LAB_MODULES with a variant's tun.ko."""
    return str(variant) if variant in (*OURS, Variant.SERIES) else "stock"


def device_flags(variant: Variant) -> int:
    """Return the IFF_ flags with which a variant's application opens its device.

    Only the kernel's own driver needs one; nodrop's flow control is on by default.
    """
    return IFF_BACKPRESSURE if variant in FLAGGED else 0


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
    if Variant.SERIES in (tun, vhost):
        found.append("series/series_compat.ko")
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


def tun_built_in() -> bool:
    """Return whether this kernel's own tun is built in."""
    return _tun_built_in(Path("/"))


def tun_module() -> Path:
    """Return the directory in /sys of nodrop's tun."""
    return Path("/sys/module", BESIDE if tun_built_in() else "tun")


def module_file(folder: Path, name: str) -> Path | None:
    """Return a module's file, possibly compressed; None if there is none.

    In a UML guest, one directory holds all modules. In a Debian guest it holds only what the tests
    have built; the kernel's own modules ("stock/") and those built by DKMS ("nodrop/") are where
    they were installed.

    Args:
        folder: LAB_MODULES.
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
        folder: LAB_MODULES.
        late_guard: set each guard_ms to LATE_MS.
    """

    def __init__(self, folder: Path, *, late_guard: bool = False) -> None:
        self._folder = folder
        self._late_guard = late_guard
        self._loaded: list[str] = []

    def use(self, tun: Variant, *, vhost: Variant | None = None) -> None:
        """Load a variant's tun.ko, kreader.ko and their dependencies; unload others first.

        Args:
            tun: the variant of tun.ko.
            vhost: the variant of vhost_net.ko; None: vhost-net is not loaded.

        Raises:
            Unsupported: tun is built in, and only one of both is to be nodrop's.
            GuestError: a module is missing, or cannot be loaded or unloaded.
        """
        if vhost and (tun in OURS) != (vhost in OURS) and tun_built_in():
            raise Unsupported("beside a built-in tun, nodrop's modules work together only")
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
            self._load_next(name)
        if self._late_guard:
            postpone_guard()

    def _load_next(self, name: str) -> None:
        folder, _, file = name.rpartition("/")
        file = f"{folder}/{tun_module().name}.ko" if file == "tun.ko" else name
        path = module_file(self._folder, file)
        if path:
            tool(["insmod", str(path)])
        elif name.startswith(("stock/macv", "stock/ipv")):
            raise Unsupported(f"there is no {name}")
        elif name != OPTIONAL and file != f"stock/{BESIDE}.ko":
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
        module = tun_module().name if module == "tun" else module
        errors: list[GuestError] = []

        def gone() -> bool:
            if Path("/sys/module", module).exists():
                try:
                    tool(["rmmod", module])
                except GuestError as error:
                    errors.append(error)
                    return False
            return True

        if not wait_until(gone, UNLOAD_TIMEOUT_S, step_s=0.02):
            raise errors[-1]
        self._loaded.pop()


def unload_all(*on_top: str) -> None:
    """Unload the drivers, nodrop's or the kernel's own, and vhost, by whatever they were loaded.

    Args:
        on_top: other modules that use them.

    Raises:
        GuestError: one is in use.
    """
    for name in (*on_top, *MODULES, "vhost", "vhost_iotlb"):
        # A built-in driver has no such file.
        if Path("/sys/module", name, "initstate").exists():
            tool(["rmmod", name])


def postpone_guard() -> None:
    """Set each guard_ms of the loaded modules to LATE_MS."""
    for guard in GUARDS:
        if guard.exists():
            guard.write_text(LATE_MS)


def main(argv: list[str]) -> int:
    """Load a variant's tun and vhost_net, and execute a command.

    Returns:
        127 if the command cannot be run, 1 if a module cannot be loaded.
    """
    variant, *command = argv
    try:
        wanted = modules(Variant(variant), Variant(variant))
        wanted.remove(READER)
        Drivers(Environment.from_environ().modules).load(wanted)
        os.execvp(command[0], command)
    except GuestError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"nodrop: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
