# SPDX-License-Identifier: GPL-2.0-only
"""What is installed on this machine: kernels, modules on disk, sources, rights."""

from __future__ import annotations

import lzma
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.host.livepatch import Livepatch

MODULES = ("vhost_net", "tap", "tun", "nodrop")
_NOTE = b"".join(n.to_bytes(4, sys.byteorder) for n in (4, 20, 3)) + b"GNU\0"
"""The head of the ELF note that has the build id."""


@dataclass(frozen=True)
class Kernel:
    """An installed kernel.

    Attributes:
        release: its name.
        image: it can be booted.
        headers: modules can be built for it.
        nodrop: its next load of tun takes nodrop's.
        why_not: why nodrop was not built for it; "": not tried, or it was.
    """

    release: str
    image: bool
    headers: bool
    nodrop: bool
    why_not: str


@dataclass(frozen=True)
class ModuleFile:
    """A module, in memory and on disk, by build id; "" where it is not, None: not known."""

    name: str
    path: str
    loaded: str | None
    on_disk: str | None

    @property
    def stale(self) -> bool:
        """Whether another one than the loaded one is on disk."""
        return bool(self.loaded and self.on_disk is not None and self.loaded != self.on_disk)


@dataclass(frozen=True)
class System:
    """What commands other than ``status`` want to know of a machine.

    Attributes:
        distribution: ID of os-release; "": not known.
        release: of the running kernel.
        kernels: those that are installed.
        modules: nodrop's, and those it takes the place of.
        tree: nodrop's sources are here for DKMS.
        livepatch: the running kernel can be livepatched.
        waiting: tasks that nodrop's livepatch waits for.
        container: what kind of container this is; "": none.
        headers_offered: the running kernel's headers are here, or apt has them.
    """

    distribution: str
    release: str
    kernels: list[Kernel]
    modules: list[ModuleFile]
    tree: bool
    livepatch: bool
    waiting: list[str]
    container: str
    headers_offered: bool = True

    @property
    def running(self) -> Kernel | None:
        """The running kernel; None: its files are not here, as in a container."""
        return next((one for one in self.kernels if one.release == self.release), None)

    @property
    def newest(self) -> Kernel | None:
        """The newest installed kernel of the running one's flavour that can be booted."""
        own = _flavour(self.release)
        fit = [one for one in self.kernels if one.image and _flavour(one.release) == own]
        return max(fit, key=lambda one: order(one.release), default=None)

    def module(self, name: str) -> ModuleFile:
        """Return one of MODULES."""
        return next(one for one in self.modules if one.name == name)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return what was recorded as JSON."""
        kernels = [Kernel(**one) for one in data["kernels"]]
        modules = [ModuleFile(**one) for one in data["modules"]]
        return cls(**{**data, "kernels": kernels, "modules": modules})


def order(release: str) -> list[int]:
    """Return what releases of kernels are sorted by: their numbers."""
    return [int(number) for number in re.findall(r"\d+", release.removesuffix(_flavour(release)))]


def _flavour(release: str) -> str:
    """Return ``amd64`` of 6.12.41+deb13-amd64, ``cloud-amd64`` of 6.1.0-35-cloud-amd64."""
    words = release.split("-")[1:]
    return "-".join(word for word in words if not word[:1].isdigit())


def read(root: Path = Path("/")) -> System:
    """Read it.

    Args:
        root: of the file system.
    """
    release = os.uname().release
    distribution = _distribution(root)
    offered = (root / f"lib/modules/{release}/build/Module.symvers").exists()
    if distribution == "debian" and not offered:
        package = f"linux-headers-{release}"
        offered = bool(_tool("apt-cache", "show", "--no-all-versions", package))
    return System(
        distribution=distribution,
        release=release,
        kernels=list(_kernels(root)),
        modules=[_module(root, release, name) for name in MODULES],
        tree=any((root / "usr/src").glob("nodrop-*/dkms.conf")),
        livepatch=(root / "sys/kernel/livepatch").is_dir(),
        waiting=Livepatch(root).holders() if not Livepatch(root).settled else [],
        container=_container(root),
        headers_offered=offered,
    )


def _distribution(root: Path) -> str:
    with suppress(OSError):
        for line in (root / "etc/os-release").read_text(errors="replace").splitlines():
            if line.startswith("ID="):
                return line.removeprefix("ID=").strip("\"'")
    return ""


def _kernels(root: Path) -> Iterable[Kernel]:
    with suppress(OSError):
        for folder in sorted((root / "lib/modules").iterdir()):
            release = folder.name
            if not (folder / "modules.dep").exists():
                continue
            tun = _path(folder, "tun")
            yield Kernel(
                release=release,
                image=(root / f"boot/vmlinuz-{release}").exists() or (folder / "vmlinuz").exists(),
                headers=(folder / "build/Module.symvers").exists(),
                nodrop=bool(tun) and not tun.startswith("kernel/"),
                why_not=_why_not(root, release),
            )


def _why_not(root: Path, release: str) -> str:
    """Return the reason in the log that kmod/fit leaves."""
    with suppress(OSError):
        text = (root / f"var/log/nodrop/{release}.log").read_text(errors="replace")
        said = [line for line in text.splitlines() if line.startswith("nodrop: ")]
        return said[0].removeprefix("nodrop: ") if said else ""
    return ""


def _path(folder: Path, module: str) -> str:
    """Return the file that a load takes, below a kernel's folder; "": none."""
    with suppress(OSError), (folder / "modules.dep").open(errors="replace") as file:
        for line in file:
            path = line.partition(":")[0]
            if path.rpartition("/")[2].partition(".ko")[0].replace("-", "_") == module:
                return path
    return ""


def _module(root: Path, release: str, name: str) -> ModuleFile:
    folder = root / "lib/modules" / release
    path = _path(folder, name)
    loaded: str | None = ""
    if (root / "sys/module" / name / "initstate").exists():
        loaded = None
        with suppress(OSError):
            note = root / "sys/module" / name / "notes/.note.gnu.build-id"
            loaded = _build_id(note.read_bytes())
    on_disk: str | None = None if not folder.is_dir() else ""
    if path:
        on_disk = _file_id(folder / path)
    return ModuleFile(name, path, loaded, on_disk)


def _file_id(path: Path) -> str | None:
    try:
        if path.suffix == ".xz":
            return _build_id(lzma.decompress(path.read_bytes()))
        return _build_id(path.read_bytes()) if path.suffix == ".ko" else None
    except (OSError, lzma.LZMAError):
        return None


def _build_id(data: bytes) -> str | None:
    place = data.find(_NOTE)
    if place < 0:
        return None
    return data[place + len(_NOTE) : place + len(_NOTE) + 20].hex()


def _tool(*argv: str) -> str:
    with suppress(NodropError):
        return proc.ask(*argv).stdout
    return ""


def _container(root: Path) -> str:
    with suppress(OSError):
        return (root / "run/systemd/container").read_text(errors="replace").strip()
    if (root / ".dockerenv").exists():
        return "docker"
    return "podman" if (root / "run/.containerenv").exists() else ""
