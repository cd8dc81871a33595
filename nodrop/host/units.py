# SPDX-License-Identifier: GPL-2.0-only
"""Services of systemd: which units stop with them, and whether systemd can start each again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError

_STOPS = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
"""Properties that name the units that systemd stops with a unit."""
_DEVICES = ("subsystem-net-devices", "devices-virtual-net")
_RUNS = ("active", "activating", "reloading", "refreshing")
_ASKED = (
    *("Id", "ActiveState", "LoadState", "Transient", "FragmentPath"),
    *("RefuseManualStart", "RefuseManualStop", *_STOPS),
)


@dataclass(frozen=True)
class Unit:
    """A unit that is to be stopped and started.

    Attributes:
        obstacle: why systemd could not start it again; "": it can.
        needs: the unit with which it stops; "": it is itself to be stopped.
    """

    name: str
    obstacle: str
    needs: str = ""


def of_device(name: str) -> list[str]:
    """Return the units that systemd has for a network device."""
    name = re.sub(r"[^A-Za-z0-9:_]", lambda char: f"\\x{ord(char[0]):02x}", name)
    return [f"sys-{where}-{name}.device" for where in _DEVICES]


def stopped_with(
    names: Sequence[str], root: Path = Path("/"), devices: Sequence[str] = ()
) -> list[Unit]:
    """Return these services, and the running units that systemd stops with them.

    Args:
        root: parent of the units' files.
        devices: units of devices that disappear; they are not returned.

    Raises:
        NodropError: systemd does not answer.
    """
    needs = dict.fromkeys((*names, *devices), "")
    units: list[Unit] = []
    asked = list(needs)
    while asked:
        shown = _show(asked)
        below: dict[str, str] = {}
        for name in asked:
            unit = shown.get(name, {})
            stops = not needs[name] or unit.get("ActiveState") in _RUNS
            if stops and name not in devices:
                units.append(Unit(name, _obstacle(unit, root), needs[name]))
            for other in " ".join(unit.get(key, "") for key in _STOPS).split():
                below.setdefault(other, name)
        asked = [name for name in below if name not in needs]
        needs.update({name: below[name] for name in asked})
    return units


def _show(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return unit -> property -> value."""
    options = [f"--property={','.join(_ASKED)}", "--", *names]
    done = proc.ask("systemctl", "show", *options)
    if done.returncode:
        raise NodropError("systemd does not tell about its services.", done.stderr.strip())
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in done.stdout.split("\n\n")
    ]
    return {block["Id"]: block for block in blocks if "Id" in block}


def _obstacle(unit: dict[str, str], root: Path) -> str:
    state = unit.get("LoadState", "not-found")
    if state != "loaded":
        return state
    if unit.get("Transient") == "yes":
        return "transient"
    if not (root / unit.get("FragmentPath", "").lstrip("/")).is_file():
        return "its file is gone"
    if "yes" in (unit.get("RefuseManualStart"), unit.get("RefuseManualStop")):
        return "it refuses systemctl start or stop"
    return ""
