# SPDX-License-Identifier: GPL-2.0-only
"""Recorded machines.

The records in tests/unit/hosts were made in guests with ``python -m nodrop.doctor``, without unused
keys. stock.json has two samples of a machine, of which the second has its differences from the
first; nodrop.json has the differences of the same machine with nodrop's driver from stock.json;
spaces.json has one sample of a machine with several namespaces.

systems.json has other distributions' kernels as their configurations and packages describe them:
which drivers are built in, and the names of the modules' files. They were not recorded.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from stubs import write

from nodrop.host.model import Device, Host
from nodrop.host.read import Raw, build

HOSTS = Path(__file__).parent / "unit/hosts"
ALL = ("stock", "upstream", "nodrop", "spaces")
NAME = "ndtest0"
KERNEL = {"release": "7.3.4", "image": True, "headers": True, "nodrop": False, "why_not": ""}

STALLED = {
    "links.0.txqlen": 20,
    "links.0.stats64.tx": {"bytes": 0, "packets": 0, "dropped": 3981},
    "qdiscs.0.backlog": 0,
    "qdiscs.0.qlen": 0,
    "time_s": 64.0,
}
"""The changes to a first sample that make its device full and unread, at an exact time."""
STALLED_NODROP = {"ring": 20, "limit": 20, "pace_ns": 0, "stalled_ms": 4120, "taken": 17}
STALLED_NODROP |= {"stops": 1, "wakes": 0, "kicks": 0, "kicks_here": 0}
STALLED_NODROP |= {"drop_guard": 3981, "guard_trips": 1}


def load(name: str) -> dict[str, Any]:
    """Return a recorded machine, stock or nodrop, with two samples."""
    data: dict[str, Any] = json.loads((HOSTS / "stock.json").read_text())
    if name != "stock":
        differences: dict[str, Any] = json.loads((HOSTS / "nodrop.json").read_text())
        for path, value in differences.items():
            set_at(data, path, value)
    later, data["after"] = data["after"], copy.deepcopy(data["before"])
    for path, value in later.items():
        set_at(data["after"]["namespaces"][0], path, value)
    data["system"]["kernels"] = [dict(KERNEL)]
    return data


def raw(name: str) -> Raw:
    """Return one sample of a machine: of ALL.

    "stock" and "nodrop" have a second device, which is idle; "upstream" is stock's with upstream's
    flag set on the device.
    """
    if name == "spaces":
        return Raw.from_json(json.loads((HOSTS / "spaces.json").read_text()))
    data = load("nodrop" if name == "nodrop" else "stock")["before"]
    space = data["namespaces"][0]
    for path, value in STALLED.items():
        set_at(space, path, copy.deepcopy(value))
    if name == "nodrop":
        space["stats"][NAME].update({f"tx0_{key}": n for key, n in STALLED_NODROP.items()})
    idle = copy.deepcopy(space["links"][0])
    idle.update(ifindex=9, ifname="idle0", flags=["NO-CARRIER", "UP"], qdisc="fq_codel")
    idle["stats64"]["tx"]["dropped"] = 0
    space["links"].append(idle)
    nothing = dict.fromkeys(("bytes", "packets", "drops", "requeues", "backlog", "qlen"), 0)
    codel = {"kind": "fq_codel", "dev": "idle0", "handle": "0:", "ecn_mark": 0, "new_flows_len": 0}
    space["qdiscs"].append({**space["qdiscs"][0], **nothing, **codel, "old_flows_len": 0})
    space["flags"]["idle0"] = dict(space["flags"][NAME])
    space["stats"]["idle0"] = {}
    if name == "upstream":
        space["sysfs"][NAME]["tun_flags"] = "0x1081"
    return Raw.from_json(data)


SYSTEMS: dict[str, dict[str, Any]] = json.loads((HOSTS / "systems.json").read_text())


def system_tree(root: Path, name: str) -> str:
    """Write a machine of SYSTEMS with its own drivers; return its kernel's release."""
    one = SYSTEMS[name]
    folder = root / "lib/modules" / one["release"]
    write(root / "etc/os-release", one["os-release"])
    write(folder / "vmlinuz")
    write(folder / "build/Module.symvers")
    write(folder / "modules.builtin", "".join(f"{path}\n" for path in one["built_in"]))
    write(folder / "modules.dep", "".join(f"{path}:\n" for path in one["modules"]))
    for path in one["modules"]:
        write(folder / path)
    write(root / "sys/class/misc/tun/dev", "10:200\n")
    if any("/tun.ko" in path for path in one["modules"]):
        write(root / "sys/module/tun/initstate", "live\n")
    release: str = one["release"]
    return release


def recorded(monkeypatch: pytest.MonkeyPatch, machine: Raw) -> None:
    monkeypatch.setattr("nodrop.commands.common.read", lambda *_args, **_words: machine)


def host(name: str) -> Host:
    return build(raw(name))


def device(machine: Host, label: str) -> Device:
    """Return a device by its name or by NAMESPACE/NAME."""
    return next(device for device in machine.devices if device.label == label)


def set_at(data: Any, path: str, value: Any) -> None:
    """Set the value at a path of keys and indexes: ``links.0.mtu``."""
    *keys, last = path.split(".")
    for key in keys:
        data = data[int(key) if key.isdigit() else key]
    data[last] = value


def get_at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data[int(key) if key.isdigit() else key]
    return data
