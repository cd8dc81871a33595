# SPDX-License-Identifier: GPL-2.0-only
"""Machines recorded for doctor, changes to them, and the expected findings."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodrop.doctor.examine import examine
from nodrop.doctor.finding import Verdict
from nodrop.doctor.sample import Record

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


def verdict(data: dict[str, Any], check: str, device: str | None = None) -> Verdict | None:
    findings = examine(Record.from_json(data).look())
    found = [one.verdict for one in findings if (one.id, one.device) == (check, device)]
    assert len(found) <= 1
    return found[0] if found else None


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
    first, second = (space["links"][0]["stats64"]["tx"] for space in spaces(data))
    second["packets"] = first["packets"]


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
NODROP_KERNEL = kernels({"nodrop": True})
NEWER = kernels({}, {"release": "7.3.10"})
FOREIGN = later(f"stats.{NAME}.tx0_drop_foreign", 5)
TAP_DROPS = later("links.0.stats64.rx.dropped", 60)
FULL = later("qdiscs.0.drops", 50)
DOWN = both("links.0.flags", ["POINTOPOINT"])
OFF = both(f"flags.{NAME}.nodrop", False)
INFO = "links.0.linkinfo.info_data"
QUEUES = [both(f"{INFO}.multi_queue", True), both(f"{INFO}.numqueues", 2)]
KEPT = both(f"{INFO}.persist", True)
LEFT = both("flags", {NAME: {"tx-checksumming": True}})
HAS, FRAGMENT = system(in_kernel=["ovpn", "wireguard"]), system(openvpn={"64": ["fragment"]})
TREE = system(tree=True)
RULE = system(kept={"nd*": True})
EMPTY = both(f"stats.{NAME}.tx0_ring", 0)
STALE = modules("bb")

Row = tuple[str, str, list[Change], str | None]
"""A check, a machine, changes to it, and the verdict."""

MACHINE: list[Row] = [
    ("kept-settings", "nodrop", [RULE, OFF], "warn"),
    ("kept-settings", "nodrop", [RULE], "ok"),
    ("kept-settings", "nodrop", [RULE, OFF, both("name", "blue")], "ok"),
    ("kept-settings", "nodrop", [RULE, later(f"flags.{NAME}.nodrop", -1)], "ok"),
    ("kept-settings", "nodrop", [RULE, system(obstacle="udev")], "warn"),
    ("kept-settings", "stock", [RULE], "warn"),
    ("kept-settings", "stock", [system(kept_unread="The file has other lines.")], "skipped"),
    ("driver-stock", "stock", [], "warn"),
    ("driver-stock", "stock", [files(initstate=None)], "warn"),
    ("driver-stock", "stock", [NODROP_KERNEL], None),
    ("driver-stock", "nodrop", [], "ok"),
    ("module-old", "stock", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, modules("aa")], "ok"),
    ("module-old", "nodrop", [live, NODROP_KERNEL, STALE], None),
    ("default-off", "nodrop", [files(default="N")], "warn"),
    ("default-off", "nodrop", [], "ok"),
    ("default-off", "stock", [], None),
    ("guard-off", "nodrop", [files(guard_ms="0")], "warn"),
    ("guard-off", "nodrop", [], "ok"),
    ("livepatch-moving", "nodrop", [live, machine(livepatch="moving")], "warn"),
    ("livepatch-moving", "nodrop", [live], "ok"),
    ("livepatch-and-package", "nodrop", [live, NODROP_KERNEL], "warn"),
    ("livepatch-and-package", "nodrop", [live], "ok"),
    ("livepatch-and-package", "nodrop", [NODROP_KERNEL], None),
    ("headers-missing", "stock", [kernels({"headers": False})], "warn"),
    ("headers-missing", "stock", [], "ok"),
    ("headers-missing", "nodrop", [kernels({"headers": False})], None),
    ("not-built", "stock", [TREE], "warn"),
    ("not-built", "stock", [kernels({"why_not": "no gcc"}), TREE], "warn"),
    ("not-built", "nodrop", [kernels({"nodrop": True}, {"release": "7.4.1"}), TREE], "warn"),
    ("not-built", "nodrop", [NODROP_KERNEL, TREE], "ok"),
    ("not-built", "stock", [], None),
    ("kernel-pending", "stock", [NEWER], "warn"),
    ("kernel-pending", "stock", [kernels({}, {"release": "7.3.3"})], "ok"),
    ("default-qdisc", "nodrop", [files(default_qdisc="pfifo_fast")], "warn"),
    ("default-qdisc", "nodrop", [files(default_qdisc=None)], "skipped"),
]

DEVICE: list[Row] = [
    ("ring-drops", "stock", [], "fail"),
    ("ring-drops", "nodrop", [], "ok"),
    ("ring-drops", "noqueue", [], "fail"),
    ("ring-drops", "stuck", [], "fail"),
    ("ring-drops", "stock", [tap(), TAP_DROPS], "fail"),
    ("ring-dropped", "nodrop", [both("links.0.stats64.tx.dropped", 7)], "warn"),
    ("ring-dropped", "nodrop", [], "ok"),
    ("ring-dropped", "stock", [], None),
    ("no-ring", "stock", [both("links.0.txqlen", 0)], "fail"),
    ("no-ring", "stock", [], "ok"),
    ("big-ring", "stock", [both("links.0.txqlen", 1000)], "warn"),
    ("big-ring", "stock", [both("links.0.txqlen", 10000)], "warn"),
    ("big-ring", "stock", [both("links.0.txqlen", 500)], "ok"),
    ("big-ring", "nodrop", [both("links.0.txqlen", 10000)], "ok"),
    ("big-ring", "stock", [tap(), both("links.0.txqlen", 5000)], "ok"),
    ("big-ring", "nodrop", [both("links.0.txqlen", 10000), OFF], "warn"),
    ("vhost-stock", "nodrop", [vhost], "warn"),
    ("vhost-stock", "nodrop", [vhost, FOREIGN], "fail"),
    ("vhost-stock", "nodrop", [vhost_nodrop], "ok"),
    ("vhost-stock", "nodrop", [], None),
    ("vhost-stock", "stock", [tap(), owner(vhost=1)], "ok"),
    ("ring-foreign", "nodrop", [FOREIGN], "fail"),
    ("ring-foreign", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [OFF], "warn"),
    ("nodrop-off", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [live, OFF], "warn"),
    ("nodrop-off", "stock", [tap(on="N")], "warn"),
    ("noqueue", "noqueue", [], "fail"),
    ("noqueue", "nodrop", [both("qdiscs.0.kind", "noqueue")], "warn"),
    ("noqueue", "nodrop", [], "ok"),
    ("noqueue", "noqueue", [DOWN], None),
    ("noqueue", "stock", [tap()], None),
    ("bufferbloat", "nodrop", [], "warn"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.options.limit", 100)], "ok"),
    ("bufferbloat", "nodrop", [both("qdiscs.0.kind", "fq_codel")], "ok"),
    ("bufferbloat", "stock", [], None),
    ("bufferbloat", "stock", [tap()], None),
    ("qdisc-drops", "nodrop", [FULL], "warn"),
    ("qdisc-drops", "nodrop", [FULL, both("qdiscs.0.kind", "fq_codel")], "ok"),
    ("qdisc-stalled", "stock", [stalled()], "warn"),
    ("qdisc-stalled", "stock", [stalled("hfsc")], "note"),
    ("qdisc-stalled", "stock", [stalled(), later("qdiscs.1.packets", 1)], "ok"),
    ("qdisc-stalled", "nodrop", [stalled(), EMPTY], "warn"),
    ("qdisc-stalled", "nodrop", [stalled()], None),
    ("no-reader", "stock", [no_reader], "warn"),
    ("no-reader", "stock", [], "ok"),
    ("no-reader", "stock", [no_reader, DOWN], None),
    ("reader-stuck", "stuck", [], "fail"),
    ("reader-stuck", "stuck", [guard_is_quiet], "fail"),
    ("reader-stuck", "stuck", [EMPTY], "fail"),
    ("reader-stuck", "stuck", [guard_is_quiet, EMPTY], "ok"),
    ("reader-stuck", "stock", [], "ok"),
    ("reader-stuck", "nodrop", [], "ok"),
    ("guard-tripped", "stuck", [], "warn"),
    ("guard-tripped", "nodrop", [], "ok"),
    ("guard-tripped", "stock", [], None),
    ("reader-starved", "starved", [], "fail"),
    ("reader-starved", "nodrop", [], "ok"),
    ("reader-starved", "stock", [waits], "warn"),
    ("reader-starved", "stock", [], "ok"),
    ("reader-saturated", "nodrop", [busy], "warn"),
    ("reader-saturated", "stock", [], "ok"),
    ("several-queues", "stock", QUEUES, "note"),
    ("several-queues", "stock", [*QUEUES, owner(vhost=1)], None),
    ("offloads-left", "stock", [KEPT, LEFT], "warn"),
    ("offloads-left", "stock", [KEPT, LEFT, both(f"{INFO}.vnet_hdr", True)], None),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS], "note"),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS, FRAGMENT], "ok"),
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS, both(f"{INFO}.type", "tap")], None),
    ("kernel-instead", "stock", [owner(name="wireguard-go"), HAS], "note"),
    ("tunnel-drops", "stock", [tunnel(), later("links.0.stats64.tx.dropped", 3)], "fail"),
    ("tunnel-drops", "stock", [tunnel(dropped=3)], "warn"),
    ("tunnel-drops", "stock", [tunnel()], "ok"),
    ("tunnel-qdisc-drops", "stock", [tunnel(), FULL], "warn"),
    ("tunnel-qdisc-drops", "stock", [tunnel()], "ok"),
]
