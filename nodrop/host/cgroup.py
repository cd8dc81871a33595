# SPDX-License-Identifier: GPL-2.0-only
"""What a process belongs to, from /proc/PID/cgroup: systemd unit, container, virtual machine.

The owner of a group may make any group in it, so the outermost name counts, as for systemd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_ID = re.compile(r"(?:(?P<by>.*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_RUNTIMES = {"docker": "docker", "libpod": "podman"}
_VM = re.compile(r"/(?:machine-)?qemu-[0-9]+-([^/]+)\.(?:scope|libvirt-qemu)(?:/|$)")
_DROPPED = re.compile("[^0-9A-Za-z]")  # by libvirt, of a domain's name


@dataclass(frozen=True)
class Place:
    """What a process belongs to; None: nothing of the kind, or not known.

    Attributes:
        unit: systemd's; of a user's own systemd, ``user@UID.service/UNIT``.
        container: ``docker:ID``, ``podman:ID``, ``kubepods:ID`` or ``lxc:NAME``.
        vm: libvirt's domain, or the name on QEMU's command line.
    """

    unit: str | None
    container: str | None
    vm: str | None

    @property
    def service(self) -> str:
        """The unit, where ``systemctl`` can restart it; "": it cannot."""
        unit = self.unit or ""
        return unit if unit.endswith(".service") and not unit.startswith("user@") else ""

    @property
    def label(self) -> str:
        """For a table, what says most; "": nothing is known."""
        if self.vm:
            return f"vm:{self.vm}"
        runtime, _, name = (self.container or "").partition(":")
        short = name[:12] if _ID.fullmatch(name) else name
        return f"{runtime}:{short}" if name else self.unit or ""


def place(text: str, guest: str = "") -> Place:
    """Return what a process belongs to.

    Args:
        text: the content of its cgroup file: a line for version 2, one for each hierarchy of 1.
        guest: the virtual machine's name on its command line; "": there is none.
    """
    lines = [line.split(":", 2) for line in text.split("\n") if line.count(":") >= 2]
    # systemd's own hierarchies first: it need not have made groups in the others.
    lines.sort(key=lambda line: line[1] not in ("", "name=systemd"))
    unit = container = vm = None
    for path in dict.fromkeys(line[2].removesuffix(" (deleted)") for line in lines):
        parts = [part.removeprefix("_") for part in path.split("/")]
        unit, container = unit or _unit(parts), container or _container(parts)
        vm = vm or _VM.search(_ESCAPED.sub(lambda code: chr(int(code[1], 16)), path))
    domain = vm[1] if vm else ""
    # The command line has the whole name, but any program may have such a command line.
    if _DROPPED.sub("", guest).startswith(_DROPPED.sub("", domain)):
        domain = guest
    return Place(unit, container, domain or None)


def _unit(parts: list[str]) -> str | None:
    units: list[str] = []
    for part in parts:
        # "..": the group is outside of this process' cgroup namespace.
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
