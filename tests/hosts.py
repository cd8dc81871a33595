# SPDX-License-Identifier: GPL-2.0-only
"""Recorded machines, and changes to them.

The records in tests/unit/hosts were made in guests with ``python -m nodrop.doctor``, without unused
keys. stock.json has two samples of a machine, of which the second has its differences from the
first; nodrop.json has the differences of the same machine with nodrop's driver from stock.json;
spaces.json has one sample of a machine with several namespaces.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop.host.model import Device, Host
from nodrop.host.read import Raw, build

HOSTS = Path(__file__).parent / "unit/hosts"
ALL = ("stock", "upstream", "nodrop", "spaces")
NAME = "ndtest0"
Change = Callable[[dict[str, Any]], None]

KERNEL = {"release": "7.3.4", "image": True, "headers": True, "nodrop": False, "why_not": ""}

RECORDS = ("stock", "nodrop", "noqueue", "stuck", "starved")
STALLED = {
    "links.0.txqlen": 20,
    "links.0.stats64.tx": {"bytes": 0, "packets": 0, "dropped": 3981},
    "qdiscs.0.backlog": 0,
    "qdiscs.0.qlen": 0,
}
"""The changes to a first sample that make its device full and unread."""
STALLED_NODROP = {"ring": 20, "limit": 20, "pace_ns": 0, "stalled_ms": 4120, "taken": 17}
STALLED_NODROP |= {"stops": 1, "wakes": 0, "kicks": 0, "kicks_here": 0}
STALLED_NODROP |= {"drop_guard": 3981, "guard_trips": 1}


def load(name: str) -> dict[str, Any]:
    """Return a recorded machine, or one made from nodrop's record, with two samples."""
    data: dict[str, Any] = json.loads((HOSTS / "stock.json").read_text())
    if name != "stock":
        differences: dict[str, Any] = json.loads((HOSTS / "nodrop.json").read_text())
        for path, value in differences.items():
            _set(data, path, value)
    later, data["after"] = data["after"], copy.deepcopy(data["before"])
    for path, value in later.items():
        both(path, value, first=1)(data)
    for change in MADE.get(name, ()):
        change(data)
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
        _set(space, path, copy.deepcopy(value))
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


def recorded(monkeypatch: pytest.MonkeyPatch, machine: Raw) -> None:
    monkeypatch.setattr("nodrop.commands.common.read", lambda *_args, **_words: machine)


def host(name: str) -> Host:
    return build(raw(name))


def device(machine: Host, label: str) -> Device:
    """Return a device by its name or by NAMESPACE/NAME."""
    return next(device for device in machine.devices if device.label == label)


def every(*changes: Change) -> Change:
    def change(data: dict[str, Any]) -> None:
        for part in changes:
            part(data)

    return change


def spaces(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [data[when]["namespaces"][0] for when in ("before", "after")]


def _set(data: Any, path: str, value: Any) -> None:
    """Set the value at a path of keys and indexes: ``links.0.mtu``."""
    *keys, last = path.split(".")
    for key in keys:
        data = data[int(key) if key.isdigit() else key]
    data[last] = value


def _get(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data[int(key) if key.isdigit() else key]
    return data


def later(path: str, amount: int) -> Change:
    """Increase a value in the second sample."""

    def change(data: dict[str, Any]) -> None:
        second = spaces(data)[1]
        _set(second, path, _get(second, path) + amount)

    return change


def both(path: str, value: Any, first: int = 0) -> Change:
    """Set a value in both samples, or in the second (first=1), relative to their namespace."""

    def change(data: dict[str, Any]) -> None:
        for space in spaces(data)[first:]:
            _set(space, path, copy.deepcopy(value))

    return change


def machine(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[when]["machine"].update(copy.deepcopy(words))

    return change


def files(**words: str | None) -> Change:
    """Set files of the machine, by the last part of their path; None: missing."""

    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            there = data[when]["machine"]["files"]
            for name, value in words.items():
                path = PATHS[name]
                there.pop(path, None)
                if value is not None:
                    there[path] = value

    return change


PATHS = {
    "default_qdisc": "proc/sys/net/core/default_qdisc",
    "guard_ms": "sys/module/nodrop/parameters/guard_ms",
    "tap_guard_ms": "sys/module/tap/parameters/guard_ms",
    "default": "sys/module/tun/parameters/nodrop",
    "initstate": "sys/module/tun/initstate",
    "version": "sys/module/tun/version",
    "holders": "sys/module/nodrop/holders",
    "vhost": "sys/class/misc/vhost-net/dev",
    "vhost_version": "sys/module/vhost_net/version",
}


def system(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["system"].update(copy.deepcopy(words))

    return change


def kernels(*each: dict[str, Any]) -> Change:
    return system(kernels=[{**KERNEL, **kernel} for kernel in each])


def owner(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[when]["machine"]["holders"][0].update(words)

    return change


no_reader = every(machine(holders=[]), both("links.0.flags", ["UP"]))


def busy(data: dict[str, Any]) -> None:
    """The reader's first thread is always running."""
    for when in ("threads_before", "threads_after"):
        data[when] = data[when][:1]
    data["threads_after"][0]["run_s"] = data["threads_before"][0]["run_s"] + 60.0


def waits(data: dict[str, Any]) -> None:
    """The reader's first thread waits for a CPU for a third of the time."""
    seconds = spaces(data)[1]["time_s"] - spaces(data)[0]["time_s"]
    data["threads_before"][0]["wait_s"] = 1.0
    data["threads_after"][0]["wait_s"] = 1.0 + seconds / 3


live = every(files(version=None, default=None, holders="nodrop_live"), machine(livepatch="in"))


# The kernel's own module has a version, too.
vhost = every(owner(vhost=1), files(vhost="10:238", vhost_version="0.0.1"))


vhost_nodrop = every(vhost, files(vhost_version="0.3.0", holders="tun vhost_net"))


def modules(on_disk: str) -> Change:

    def change(data: dict[str, Any]) -> None:
        for module in data["system"]["modules"]:
            module.update(loaded="aa", on_disk=on_disk)

    return change


def tunnel(dropped: int = 0) -> Change:
    return every(
        both("links.0.linkinfo", {"info_kind": "vxlan"}),
        both("links.0.stats64.tx.dropped", dropped),
        both("qdiscs.0.kind", "pfifo"),
        both("qdiscs.0.drops", 0),
    )


def tap(kind: str = "macvtap", *, on: str | None = "Y") -> Change:
    """The device is a macvtap or ipvtap; on: None: with the kernel's own tap."""

    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            machine, space = data[when]["machine"], data[when]["namespaces"][0]
            machine["files"]["sys/module/tap/initstate"] = "live"
            if on:
                machine["files"]["sys/module/tap/parameters/nodrop"] = on
            link = space["links"][0]
            link.update(qdisc="noqueue", linkinfo={"info_kind": kind, "info_data": {}})
            link["stats64"] = {
                "rx": {"packets": 1000, "bytes": 90000, "dropped": 70},
                "tx": {"packets": 3, "bytes": 300, "dropped": 0},
            }
            # Its file is not that of the TUN device.
            machine["holders"][0].update(tun=[], tap=[link["ifindex"]])
            counters = {"rx0_drop_unheld": 70, "rx0_ring": 7, "rx0_limit": 20}
            space.update(qdiscs=[], stats={NAME: counters} if on else {})

    return change


def stalled(root: str = "mq") -> Change:
    """One of the qdiscs below the root has packets and sends none."""

    def change(data: dict[str, Any]) -> None:
        for space in spaces(data):
            leaf = {"kind": "pfifo_fast", "parent": "1:1", "root": False, "qlen": 6, "packets": 40}
            space["qdiscs"].append({**space["qdiscs"][0], **leaf})
            space["qdiscs"][0]["kind"] = root

    return change


def guard_is_quiet(data: dict[str, Any]) -> None:
    """The ring stays as full as it was, and no counter of the guard grows."""
    first, second = (space["stats"][NAME] for space in spaces(data))
    for name in ("tx0_guard_trips", "tx0_drop_guard"):
        second[name] = first[name]
    first["tx0_ring"] = second["tx0_ring"] = 5


def starved(data: dict[str, Any]) -> None:
    """A second reader has the policy SCHED_IDLE: it is runnable and does not run."""
    thread = {**data["threads_before"][0], "pid": 226, "tid": 226, "policy": 5}
    for when in ("before", "after"):
        data[f"threads_{when}"].append(thread)
        holders = data[when]["machine"]["holders"]
        holders.append({**holders[0], "pid": 226})
    data["ready"]["226"] = 1.0


def dropping(cause: str) -> Change:
    dropped, counted = "links.0.stats64.tx.dropped", f"stats.{NAME}.tx0_drop_{cause}"
    return every(later(dropped, 10_000), later(counted, 10_000))


def nothing_delivered(data: dict[str, Any]) -> None:
    first, second = spaces(data)
    second["links"][0]["stats64"]["tx"]["packets"] = first["links"][0]["stats64"]["tx"]["packets"]
    if "tx0_taken" in first["stats"].get(NAME, ()):
        second["stats"][NAME]["tx0_taken"] = first["stats"][NAME]["tx0_taken"]


def queue(number: int = 0, *, ring: int, taken: int = 0, stalled_ms: int = 0) -> Change:
    """A queue has packets in its ring all the time; its reader takes some of them."""
    counters = {"ring": ring, "stalled_ms": stalled_ms, "taken": 1000}
    name = f"stats.{NAME}.tx{number}"
    return every(
        *(both(f"{name}_{counter}", value) for counter, value in counters.items()),
        later(f"{name}_taken", taken),
    )


def older(data: dict[str, Any]) -> None:
    """The driver counts neither what its reader took, nor since when it is stalled."""
    for space in spaces(data):
        for name in [name for name in space["stats"][NAME] if name.endswith(("taken", "d_ms"))]:
            del space["stats"][NAME][name]


calm = every(both("qdiscs.0.qlen", 0), both("qdiscs.0.backlog", 0))
"""Nothing is in the qdisc."""


def blocked(data: dict[str, Any]) -> None:
    """Nothing leaves the qdisc, and nothing comes into it."""
    first, second = (space["qdiscs"][0] for space in spaces(data))
    second.update(first)


def short(data: dict[str, Any]) -> None:
    first, second = spaces(data)
    second["time_s"] = first["time_s"] + 0.2


def asleep(state: str = "S", run: float = 0.0) -> Change:
    """The reader's threads sleep; run: all of them use this share of a CPU nevertheless."""

    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[f"threads_{when}"] = [
                {**thread, "state": state} for thread in copy.deepcopy(data["threads_before"])
            ]
        first, second = spaces(data)
        for thread in data["threads_after"]:
            thread["run_s"] += run * (second["time_s"] - first["time_s"])
        data["ready"] = {}

    return change


def another_reader(data: dict[str, Any]) -> None:
    """A second process has the device open, too, and sleeps."""
    thread = {**data["threads_before"][0], "pid": 226, "tid": 226, "state": "S"}
    for when in ("before", "after"):
        data[f"threads_{when}"].append(thread)
        holders = data[when]["machine"]["holders"]
        holders.append({**holders[0], "pid": 226, "edge": []})


MADE: dict[str, list[Change]] = {
    "noqueue": [both("qdiscs.0.kind", "noqueue"), dropping("noqueue")],
    "starved": [starved],
    "stuck": [
        nothing_delivered,
        both(f"stats.{NAME}.tx0_guard_trips", 1),
        both(f"stats.{NAME}.tx0_ring", 5),
        dropping("guard"),
    ],
}
