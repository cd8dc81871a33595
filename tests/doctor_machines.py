# SPDX-License-Identifier: GPL-2.0-only
"""Machines recorded for doctor, and changes to them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "unit/doctor"
NAME = "ndtest0"
Change = Callable[[dict[str, Any]], None]

KERNEL = {"release": "7.3.4", "image": True, "headers": True, "nodrop": False, "why_not": ""}

RECORDS = ("stock", "nodrop", "noqueue", "stuck", "starved")


def load(name: str) -> dict[str, Any]:
    """Return a recorded machine, or one made from nodrop's record.

    Its file has the second sample's differences from the first, all in the namespace.
    """
    recorded = "stock" if name == "stock" else "nodrop"
    found: dict[str, Any] = json.loads((RECORDED / f"{recorded}.json").read_text())
    differences, found["after"] = found["after"], copy.deepcopy(found["before"])
    for path, value in differences.items():
        both(path, value, first=1)(found)
    for change in MADE.get(name, ()):
        change(found)
    found["system"]["kernels"] = [dict(KERNEL)]
    return found


def spaces(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [data[when]["namespaces"][0] for when in ("before", "after")]


def inner(place: Any, keys: list[str]) -> Any:
    for key in keys:
        place = place[int(key) if key.isdigit() else key]
    return place


def later(path: str, amount: int) -> Change:
    """Increase a value in the second sample."""

    def change(data: dict[str, Any]) -> None:
        *keys, last = path.split(".")
        inner(spaces(data)[1], keys)[last] += amount

    return change


def both(path: str, value: Any, first: int = 0) -> Change:
    """Set a value in both samples, or in the second (first=1), relative to their namespace."""

    def change(data: dict[str, Any]) -> None:
        *keys, last = path.split(".")
        for space in spaces(data)[first:]:
            inner(space, keys)[last] = value

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
    return system(kernels=[{**KERNEL, **one} for one in each])


def owner(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[when]["machine"]["holders"][0].update(words)

    return change


def no_reader(data: dict[str, Any]) -> None:
    machine(holders=[])(data)
    both("links.0.flags", ["UP"])(data)


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


def live(data: dict[str, Any]) -> None:
    files(version=None, default=None, holders="nodrop_live")(data)
    machine(livepatch="in")(data)


def vhost(data: dict[str, Any]) -> None:
    owner(vhost=1)(data)
    # The kernel's own module has a version, too.
    files(vhost="10:238", vhost_version="0.0.1")(data)


def vhost_nodrop(data: dict[str, Any]) -> None:
    vhost(data)
    files(vhost_version="0.3.0", holders="tun vhost_net")(data)


def modules(on_disk: str) -> Change:
    """The loaded modules have the build id "aa"."""

    def change(data: dict[str, Any]) -> None:
        for one in data["system"]["modules"]:
            one.update(loaded="aa", on_disk=on_disk)

    return change


def tunnel(dropped: int = 0) -> Change:
    def change(data: dict[str, Any]) -> None:
        for space in spaces(data):
            one = space["links"][0]
            one["linkinfo"] = {"info_kind": "vxlan"}
            one["stats64"]["tx"]["dropped"] = dropped
            space["qdiscs"][0].update(kind="pfifo", drops=0)

    return change


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


def dropping(cause: str) -> list[Change]:
    """Every packet is dropped for one cause."""
    dropped, counted = "links.0.stats64.tx.dropped", f"stats.{NAME}.tx0_drop_{cause}"
    return [later(dropped, 10_000), later(counted, 10_000)]


def nothing_delivered(data: dict[str, Any]) -> None:
    first, second = spaces(data)
    second["links"][0]["stats64"]["tx"]["packets"] = first["links"][0]["stats64"]["tx"]["packets"]
    if "tx0_taken" in first["stats"].get(NAME, ()):
        second["stats"][NAME]["tx0_taken"] = first["stats"][NAME]["tx0_taken"]


def queue(number: int = 0, *, ring: int, taken: int = 0, stalled_ms: int = 0) -> Change:
    """A queue has packets in its ring all the time; its reader takes some of them."""

    def change(data: dict[str, Any]) -> None:
        now = {"ring": ring, "stalled_ms": stalled_ms, "taken": 1000}
        for space in spaces(data):
            space["stats"][NAME].update({f"tx{number}_{name}": n for name, n in now.items()})
        second = spaces(data)[1]["stats"][NAME]
        second[f"tx{number}_taken"] += taken

    return change


def older(data: dict[str, Any]) -> None:
    """The driver counts neither what its reader took, nor since when it is stalled."""
    for space in spaces(data):
        for name in [name for name in space["stats"][NAME] if name.endswith(("taken", "d_ms"))]:
            del space["stats"][NAME][name]


def calm(data: dict[str, Any]) -> None:
    """Nothing is in the qdisc."""
    for space in spaces(data):
        space["qdiscs"][0].update(qlen=0, backlog=0)


def blocked(data: dict[str, Any]) -> None:
    """Nothing leaves the qdisc, and nothing comes into it."""
    first, second = (space["qdiscs"][0] for space in spaces(data))
    second.update(first)


def short(data: dict[str, Any]) -> None:
    """The samples are 0.2 s apart."""
    first, second = spaces(data)
    second["time_s"] = first["time_s"] + 0.2


def asleep(state: str = "S") -> Change:
    """No thread of the reader ran."""

    def change(data: dict[str, Any]) -> None:
        for when in ("before", "after"):
            data[f"threads_{when}"] = [
                {**one, "state": state} for one in copy.deepcopy(data["threads_before"])
            ]
        data["ready"] = {}

    return change


def another_reader(data: dict[str, Any]) -> None:
    """A second process has the device open, too."""
    for when in ("before", "after"):
        holders = data[when]["machine"]["holders"]
        holders.append({**holders[0], "pid": 226, "edge": []})


MADE: dict[str, list[Change]] = {
    "noqueue": [both("qdiscs.0.kind", "noqueue"), *dropping("noqueue")],
    "starved": [starved],
    "stuck": [
        nothing_delivered,
        both(f"stats.{NAME}.tx0_guard_trips", 1),
        both(f"stats.{NAME}.tx0_ring", 5),
        *dropping("guard"),
    ],
}
