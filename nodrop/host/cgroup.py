# SPDX-License-Identifier: GPL-2.0-only
"""Find the systemd unit, container and virtual machine of a process from /proc/PID/cgroup.

The owner of a cgroup may create any cgroup in it, so the outermost name counts, as for systemd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_ID = re.compile(r"(?:(?P<by>.*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_RUNTIMES = {"docker": "docker", "libpod": "podman"}
_VM = re.compile(r"/(?:machine-)?qemu-[0-9]+-([^/]+)\.(?:scope|libvirt-qemu)(?:/|$)")
_DROPPED = re.compile("[^0-9A-Za-z]")  # libvirt removes these from a domain's name


@dataclass(frozen=True)
class Place:
    """The unit, container and virtual machine of a process; None: none, or not known.

    Attributes:
        unit: systemd unit; of a user's systemd, ``user@UID.service/UNIT``.
        container: ``docker:ID``, ``podman:ID``, ``kubepods:ID`` or ``lxc:NAME``.
        vm: libvirt's domain, or the name on QEMU's command line.
    """

    unit: str | None
    container: str | None
    vm: str | None

    @property
    def service(self) -> str:
        """The unit if ``systemctl`` can restart it; "" otherwise."""
        unit = self.unit or ""
        return unit if unit.endswith(".service") and not unit.startswith("user@") else ""

    @property
    def label(self) -> str:
        """The most specific name, for a table; "": nothing is known."""
        if self.vm:
            return f"vm:{self.vm}"
        runtime, _, name = (self.container or "").partition(":")
        short = name[:12] if _ID.fullmatch(name) else name
        return f"{runtime}:{short}" if name else self.unit or ""


@lru_cache(1024)
def place(text: str, guest: str = "") -> Place:
    """Return the place of a process.

    Args:
        text: content of its cgroup file: one line for version 2, one per hierarchy for version 1.
        guest: virtual machine's name on its command line; "": none.
    """
    lines = [line.split(":", 2) for line in text.split("\n") if line.count(":") >= 2]
    # systemd's own hierarchies first: it may not have created cgroups in the others.
    lines.sort(key=lambda line: line[1] not in ("", "name=systemd"))
    unit = container = vm = None
    for path in dict.fromkeys(line[2].removesuffix(" (deleted)") for line in lines):
        parts = [part.removeprefix("_") for part in path.split("/")]
        unit, container = unit or _unit(parts), container or _container(parts)
        vm = vm or _VM.search(_ESCAPED.sub(lambda code: chr(int(code[1], 16)), path))
    domain = vm[1] if vm else ""
    # The command line has the full name, but any program may choose such a command line.
    if _DROPPED.sub("", guest).startswith(_DROPPED.sub("", domain)):
        domain = guest
    return Place(unit, container, domain or None)


def _unit(parts: list[str]) -> str | None:
    units: list[str] = []
    for part in parts:
        # "..": the cgroup is outside of this process's cgroup namespace.
        if part in ("", "..") or part.endswith(".slice"):
            continue
        if not part.endswith((".service", ".scope")):
            break
        units.append(part)
        if len(units) == 2 or not part.startswith("user@"):
            break
    return "/".join(units) or None


def _container(parts: list[str]) -> str | None:
    pods = False
    for before, part in pairwise(parts):
        pods = pods or part.startswith("kubepods")
        if part.startswith("lxc.payload."):
            return f"lxc:{part.removeprefix('lxc.payload.')}"
        if part and before in ("lxc", "lxc.payload"):
            return f"lxc:{part}"
        if match := _ID.fullmatch(part):
            runtime = "kubepods" if pods else _RUNTIMES.get(match["by"] or before)
            return f"{runtime}:{match['id']}" if runtime else None
    return None
