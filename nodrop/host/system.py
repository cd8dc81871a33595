# SPDX-License-Identifier: GPL-2.0-only
"""Installed kernels, modules and settings, as doctor needs them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.host import modules
from nodrop.host.livepatch import Livepatch
from nodrop.host.modules import ModuleFile
from nodrop.host.qdisc import QdiscRules
from nodrop.host.settings import Rules

APT = ("ubuntu", "debian")
"""Distributions whose kernels' sources and headers are packages of apt; the first that fits."""


@dataclass(frozen=True)
class InstalledKernel:
    """An installed kernel.

    Attributes:
        release: kernel release.
        image: it can be booted.
        headers: its headers are installed.
        nodrop: its next load of tun takes nodrop's.
        why_not: why nodrop was not built for it; "": it was, or that was not tried.
    """

    release: str
    image: bool
    headers: bool
    nodrop: bool
    why_not: str


@dataclass(frozen=True)
class System:
    """The installed kernels, modules and settings of a machine.

    Attributes:
        distribution: ID of os-release, or which of APT it derives from; "": not known.
        release: release of the running kernel.
        kernels: installed kernels.
        modules: the modules that nodrop installs or replaces.
        tree: nodrop's sources for DKMS are installed.
        livepatch: the running kernel supports livepatches.
        waiting: tasks that the transition of nodrop's livepatch waits for.
        container: kind of this container; "": not a container.
        headers_offered: the running kernel's headers are installed, or apt has them.
        in_kernel: those of ovpn and wireguard that the running kernel has.
        rules: settings that 'nodrop set' keeps (:meth:`Rules.read`).
        rules_unread: why they cannot be read; "": they can.
        obstacle: why they are not applied (:meth:`Rules.obstacle`).
        qdisc_rules, qdisc_rules_unread, qdisc_obstacle: the same of :class:`qdisc.QdiscRules`.
        livepatches: other livepatches of the drivers (:func:`modules.other_livepatches`).
    """

    distribution: str
    release: str
    kernels: list[InstalledKernel]
    modules: list[ModuleFile]
    tree: bool
    livepatch: bool
    waiting: list[str]
    container: str
    headers_offered: bool = True
    in_kernel: list[str] = field(default_factory=list)
    rules: dict[str, bool] = field(default_factory=dict)
    rules_unread: str = ""
    obstacle: str = ""
    qdisc_rules: dict[str, bool] = field(default_factory=dict)
    qdisc_rules_unread: str = ""
    qdisc_obstacle: str = ""
    livepatches: dict[str, list[str]] = field(default_factory=dict)

    @property
    def running(self) -> InstalledKernel | None:
        """The running kernel; None: it is not installed here, as in a container."""
        return next((kernel for kernel in self.kernels if kernel.release == self.release), None)

    @property
    def newest(self) -> InstalledKernel | None:
        """The newest bootable kernel of the running kernel's flavour."""
        own = _flavour(self.release)
        bootable = [kernel for kernel in self.kernels if kernel.image]
        fit = [kernel for kernel in bootable if _flavour(kernel.release) == own]
        return max(fit, key=lambda kernel: order(kernel.release), default=None)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> System:
        """Return a system from its JSON."""
        kernels = [InstalledKernel(**kernel) for kernel in data["kernels"]]
        files = [ModuleFile(**file) for file in data["modules"]]
        return cls(**{**data, "kernels": kernels, "modules": files})


def headers_package(release: str) -> str:
    """Return Debian's, Ubuntu's or Proxmox' package with the headers of a kernel."""
    return f"{'proxmox' if release.endswith('-pve') else 'linux'}-headers-{release}"


def order(release: str) -> list[int]:
    """Return the sort key of a kernel release: its numbers."""
    return [int(number) for number in re.findall(r"\d+", release.removesuffix(_flavour(release)))]


def _flavour(release: str) -> str:
    """Return ``amd64`` of 6.12.41+deb13-amd64, ``cloud-amd64`` of 6.1.0-35-cloud-amd64."""
    parts = release.split("-")[1:]
    return "-".join(part for part in parts if not part[:1].isdigit())


def read(root: Path = Path("/")) -> System:
    """Read the system; ``root``: its root directory."""
    release = os.uname().release
    distribution = _distribution(root)
    offered = (root / f"lib/modules/{release}/build/Module.symvers").exists()
    if distribution in APT and not offered:
        with suppress(NodropError):
            argv = ("apt-cache", "show", "--no-all-versions", headers_package(release))
            offered = bool(proc.ask(*argv).stdout)
    others = modules.read(root, release, ("ovpn", "wireguard"))
    file, qdisc_file = Rules(root), QdiscRules(root)
    rules, unread = _read_rules(file)
    qdisc_rules, qdiscs_unread = _read_rules(qdisc_file)
    return System(
        distribution=distribution,
        release=release,
        kernels=list(_kernels(root)),
        modules=modules.read(root, release),
        tree=modules.sources(root),
        livepatch=(root / "sys/kernel/livepatch").is_dir(),
        waiting=Livepatch(root).holders() if not Livepatch(root).settled else [],
        container=_container(root),
        headers_offered=offered,
        in_kernel=[module.name for module in others if module.path or module.loaded != ""],
        rules=rules,
        rules_unread=unread,
        obstacle=file.obstacle(),
        qdisc_rules=qdisc_rules,
        qdisc_rules_unread=qdiscs_unread,
        qdisc_obstacle=qdisc_file.obstacle() if any(qdisc_rules.values()) else "",
        livepatches=modules.other_livepatches(root),
    )


def _read_rules(file: Rules | QdiscRules) -> tuple[dict[str, bool], str]:
    """Return the kept settings, and why they cannot be read ("": they can)."""
    try:
        return file.read(), ""
    except NodropError as error:
        return {}, error.message


def _distribution(root: Path) -> str:
    with suppress(OSError):
        text = (root / "etc/os-release").read_text(errors="replace")
        fields = dict(re.findall(r"^(ID|ID_LIKE)=[\"']?([^\"'\n]*)", text, re.MULTILINE))
        name = fields.get("ID", "")
        family = {name, *fields.get("ID_LIKE", "").split()}
        return next((known for known in APT if known in family), name)
    return ""


def _kernels(root: Path) -> Iterable[InstalledKernel]:
    with suppress(OSError):
        for folder in sorted((root / "lib/modules").iterdir()):
            release = folder.name
            if not (folder / "modules.dep").exists():
                continue
            yield InstalledKernel(
                release=release,
                image=(root / f"boot/vmlinuz-{release}").exists() or (folder / "vmlinuz").exists(),
                headers=(folder / "build/Module.symvers").exists(),
                nodrop=modules.installed(root, release),
                why_not=_why_not(root, release),
            )


def _why_not(root: Path, release: str) -> str:
    """Return the reason in the log of dkms/fit; "": none."""
    with suppress(OSError):
        text = (root / f"var/log/nodrop/{release}.log").read_text(errors="replace")
        ours = [line for line in text.splitlines() if line.startswith("nodrop: ")]
        return ours[0].removeprefix("nodrop: ") if ours else ""
    return ""


def _container(root: Path) -> str:
    with suppress(OSError):
        return (root / "run/systemd/container").read_text(errors="replace").strip()
    if (root / ".dockerenv").exists():
        return "docker"
    return "podman" if (root / "run/.containerenv").exists() else ""
