# SPDX-License-Identifier: GPL-2.0-only
"""Every check of doctor with and without a finding, and the repairs that it names.

Most cases change one thing in a recorded machine (hosts.py).
"""

from __future__ import annotations

import copy
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hosts import KERNEL, NAME, get_at, load, set_at

from nodrop import cli
from nodrop.commands import doctor as doctor_command
from nodrop.doctor import findings, fixes
from nodrop.doctor.findings import Severity, Verdict
from nodrop.doctor.observation import Record
from nodrop.host.model import Driver

Change = Callable[[dict[str, Any]], None]
BAD = ("note", "warn", "fail")
TX0 = f"stats.{NAME}.tx0"
INFO = "links.0.linkinfo.info_data"
SENT, DROPPED = "links.0.stats64.tx.packets", "links.0.stats64.tx.dropped"


def samples(data: dict[str, Any], part: str) -> list[Any]:
    """Return the machine, or its only namespace, of both samples."""
    return [data[when][part] for when in ("before", "after")]


def spaces(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [namespaces[0] for namespaces in samples(data, "namespaces")]


def every(*changes: Change) -> Change:
    def change(data: dict[str, Any]) -> None:
        for part in changes:
            part(data)

    return change


def later(path: str, amount: int) -> Change:
    """Increase a value in the second sample."""

    def change(data: dict[str, Any]) -> None:
        second = spaces(data)[1]
        set_at(second, path, get_at(second, path) + amount)

    return change


def both(path: str, value: Any, first: int = 0) -> Change:
    """Set a value in both samples, or in the second (first=1), relative to their namespace."""

    def change(data: dict[str, Any]) -> None:
        for space in spaces(data)[first:]:
            set_at(space, path, copy.deepcopy(value))

    return change


def machine(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for sample in samples(data, "machine"):
            sample.update(copy.deepcopy(words))

    return change


def owner(**words: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for sample in samples(data, "machine"):
            sample["holders"][0].update(words)

    return change


PATHS = {
    "default_qdisc": "proc/sys/net/core/default_qdisc",
    "guard_ms": "sys/module/nodrop/parameters/guard_ms",
    "tap_guard_ms": "sys/module/tap/parameters/guard_ms",
    "tap_default": "sys/module/tap/parameters/nodrop",
    "tap_initstate": "sys/module/tap/initstate",
    "default": "sys/module/tun/parameters/nodrop",
    "initstate": "sys/module/tun/initstate",
    "version": "sys/module/tun/version",
    "beside": "sys/module/nodrop_tun/parameters/nodrop",
    "beside_version": "sys/module/nodrop_tun/version",
    "holders": "sys/module/nodrop/holders",
    "vhost": "sys/class/misc/vhost-net/dev",
    "vhost_version": "sys/module/vhost_net/version",
}


def files(**words: str | None) -> Change:
    """Set files of the machine, by their names in PATHS; None: missing."""

    def change(data: dict[str, Any]) -> None:
        for sample in samples(data, "machine"):
            for name, value in words.items():
                sample["files"].pop(PATHS[name], None)
                if value is not None:
                    sample["files"][PATHS[name]] = value

    return change


def system(**words: Any) -> Change:
    return lambda data: data["system"].update(copy.deepcopy(words))


def kernels(*each: dict[str, Any]) -> Change:
    return system(kernels=[{**KERNEL, **kernel} for kernel in each])


def modules(on_disk: str | None, of: str = "") -> Change:
    def change(data: dict[str, Any]) -> None:
        for module in data["system"]["modules"]:
            module.update(loaded="aa", on_disk=on_disk if of in module["name"] else "aa")
            module["path"] = module["path"] or f"kernel/{module['name']}.ko.zst"

    return change


def beside(loaded: str) -> Change:
    """nodrop_tun is on disk, with build ID bb, and loaded with this one."""

    def change(data: dict[str, Any]) -> None:
        path = "updates/dkms/nodrop_tun.ko"
        file = {"name": "nodrop_tun", "path": path, "loaded": loaded, "on_disk": "bb"}
        unused = [{**one, "loaded": ""} for one in data["system"]["modules"]]
        data["system"]["modules"] = [*unused, file]

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
    counters = {"rx0_drop_unheld": 70, "rx0_ring": 7, "rx0_limit": 20}
    rx = {"packets": 1000, "bytes": 90000, "dropped": 70}
    tx = {"packets": 3, "bytes": 300, "dropped": 0}
    return every(
        files(tap_initstate="live", tap_default=on),
        both("links.0.qdisc", "noqueue"),
        both("links.0.linkinfo", {"info_kind": kind, "info_data": {}}),
        both("links.0.stats64", {"rx": rx, "tx": tx}),
        both("qdiscs", []),
        both("stats", {NAME: counters} if on else {}),
        # Its file is not that of the TUN device.
        lambda data: owner(tun=[], tap=[spaces(data)[0]["links"][0]["ifindex"]])(data),
    )


def stalled(root: str = "mq") -> Change:
    """One of the qdiscs below the root has packets and sends none."""

    def change(data: dict[str, Any]) -> None:
        for space in spaces(data):
            leaf = {"kind": "pfifo_fast", "parent": "1:1", "root": False, "qlen": 6, "packets": 40}
            space["qdiscs"].append({**space["qdiscs"][0], **leaf})
            space["qdiscs"][0]["kind"] = root

    return change


def dropping(cause: str) -> Change:
    return every(later(DROPPED, 10_000), later(f"{TX0}_drop_{cause}", 10_000))


def queue(number: int = 0, *, ring: int, taken: int = 0, stalled_ms: int = 0) -> Change:
    """A queue has packets in its ring all the time; its reader takes some of them."""
    counters = {"ring": ring, "stalled_ms": stalled_ms, "taken": 1000}
    name = f"stats.{NAME}.tx{number}"
    return every(
        *(both(f"{name}_{counter}", value) for counter, value in counters.items()),
        later(f"{name}_taken", taken),
    )


def unchanged(*paths: str) -> Change:
    """The second sample has the first one's values, where there are any."""

    def change(data: dict[str, Any]) -> None:
        first, second = spaces(data)
        for path in paths:
            with suppress(KeyError):
                set_at(second, path, copy.deepcopy(get_at(first, path)))

    return change


NODROP_KERNEL = kernels({"nodrop": True})
LATER = {"release": "7.3.10"}
NEWER = kernels({}, LATER)
QUIET = every(both(DROPPED, 0), both("qdiscs.0.drops", 0))
FOREIGN = later(f"{TX0}_drop_foreign", 5)
TAP_DROPS = later("links.0.stats64.rx.dropped", 60)
FULL = later("qdiscs.0.drops", 50)
DOWN = both("links.0.flags", ["POINTOPOINT"])
OFF = both(f"flags.{NAME}.nodrop", False)
QUEUES = [both(f"{INFO}.multi_queue", True), both(f"{INFO}.numqueues", 2)]
KEPT = both(f"{INFO}.persist", True)
LEFT = both("flags", {NAME: {"tx-checksumming": True}})
HAS = system(in_kernel=["ovpn", "wireguard"])
TREE = system(tree=True)
KLP = system(livepatches={"klp_7": ["tun"]})
RULE = system(rules={"nd*": True})
QDISC = system(qdisc_rules={"nd*": True})
EMPTY = both(f"{TX0}_ring", 0)
STALE = modules("bb")
TRIPS = later(f"{TX0}_guard_trips", 1)
LOSES = later(f"{TX0}_drop_guard", 40)
REOPENED = queue(ring=4, taken=-900, stalled_ms=50)
NO_PACE = both(f"{TX0}_pace_ns", 0)
NO_READER = every(machine(holders=[]), both("links.0.flags", ["UP"]))
NOTHING_DELIVERED = unchanged(SENT, f"{TX0}_taken")
# Nothing is in the qdisc; nothing leaves it, and nothing comes into it.
CALM = every(both("qdiscs.0.qlen", 0), both("qdiscs.0.backlog", 0))
BLOCKED = unchanged("qdiscs")
# The ring stays as full as it was, and no counter of the guard grows.
QUIET_GUARD = every(unchanged(f"{TX0}_guard_trips", f"{TX0}_drop_guard"), both(f"{TX0}_ring", 5))
LIVE = every(files(version=None, default=None, holders="nodrop_live"), machine(livepatch="in"))
# The kernel's own module has a version, too.
VHOST = every(owner(vhost=1), files(vhost="10:238", vhost_version="0.0.1"))
BUILT_IN = files(initstate=None, version=None, default=None, holders=None)
BESIDE = every(BUILT_IN, files(beside="Y", beside_version="1.0.0", holders="nodrop_tun"))
BEFORE = every(both("flags", {NAME: {}}), both("stats", {NAME: {}}))
"""The device was opened before nodrop_tun was loaded."""
VHOST_NODROP = every(VHOST, files(vhost_version="0.3.0", holders="tun vhost_net"))
SECOND = [*QUEUES, queue(1, ring=4)]
STALLED = [both(f"{TX0}_guard_trips", 1), queue(ring=4, taken=9, stalled_ms=12_300)]
EDGE = [owner(edge=[NAME]), NOTHING_DELIVERED, CALM, queue(ring=3)]
BEHIND = [owner(edge=[NAME]), queue(ring=3, taken=80)]
ONE_EDGE = owner(edge=[NAME])
TRICKLE = [queue(ring=4, taken=8)]
SAME_STOPS = both(f"{TX0}_stops", 54)
SMALLEST = both(f"{TX0}_limit", 4)
QUICK = later("qdiscs.0.bytes", 100_000)


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


def asleep(state: str = "S", run: float = 0.0) -> Change:
    """The reader's threads sleep; run: all of them use this share of a CPU nevertheless."""

    def change(data: dict[str, Any]) -> None:
        first, second = spaces(data)
        run_s = run * (second["time_s"] - first["time_s"])
        before = [{**thread, "state": state} for thread in data["threads_before"]]
        after = [{**thread, "run_s": thread["run_s"] + run_s} for thread in before]
        data.update(threads_before=before, threads_after=after, ready={})

    return change


def another_reader(data: dict[str, Any]) -> None:
    """A second process has the device open, too, and sleeps."""
    thread = {**data["threads_before"][0], "pid": 226, "tid": 226, "state": "S"}
    for when, sample in zip(("before", "after"), samples(data, "machine"), strict=True):
        data[f"threads_{when}"].append(thread)
        sample["holders"].append({**sample["holders"][0], "pid": 226, "edge": []})


def starved(data: dict[str, Any]) -> None:
    """A second reader has the policy SCHED_IDLE: it is runnable and does not run."""
    another_reader(data)
    thread = {**data["threads_before"][0], "pid": 226, "tid": 226, "policy": 5}
    for when in ("before", "after"):
        data[f"threads_{when}"][-1] = thread
    data["ready"]["226"] = 1.0


def older(data: dict[str, Any]) -> None:
    """The driver counts neither what its reader took, nor since when it is stalled."""
    for space in spaces(data):
        for name in [name for name in space["stats"][NAME] if name.endswith(("taken", "d_ms"))]:
            del space["stats"][NAME][name]


def short(data: dict[str, Any]) -> None:
    first, second = spaces(data)
    second["time_s"] = first["time_s"] + 0.2


def was_empty(data: dict[str, Any]) -> None:
    """The ring was empty in the first sample."""
    set_at(spaces(data)[0], f"{TX0}_ring", 0)


RECORDS: dict[str, list[Change]] = {
    "stock": [],
    "nodrop": [],
    "noqueue": [both("qdiscs.0.kind", "noqueue"), dropping("noqueue")],
    "starved": [starved],
    "stuck": [
        *(NOTHING_DELIVERED, both(f"{TX0}_guard_trips", 1), both(f"{TX0}_ring", 5)),
        dropping("guard"),
    ],
}
"""Machines -> the changes that make them of the record of stock's or nodrop's."""

Row = tuple[str, str, list[Change], str | None]
"""A check, a machine, changes to it, and the verdict."""

MACHINE: list[Row] = [
    ("kept-settings", "nodrop", [RULE, OFF], "warn"),
    ("kept-settings", "nodrop", [RULE], "ok"),
    ("kept-settings", "nodrop", [RULE, OFF, both("name", "blue")], "ok"),
    ("kept-settings", "nodrop", [RULE, later(f"flags.{NAME}.nodrop", -1)], "ok"),
    ("kept-settings", "nodrop", [RULE, system(obstacle="udev")], "warn"),
    ("kept-settings", "stock", [RULE], "warn"),
    ("kept-settings", "stock", [system(rules_unread="The file has other lines.")], "skipped"),
    ("kept-qdiscs", "noqueue", [QDISC], "warn"),
    ("kept-qdiscs", "noqueue", [DOWN, QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [both("name", "blue"), QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [tap(), QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [both("qdiscs.0.kind", "fq_codel", first=1), QDISC], "ok"),
    ("kept-qdiscs", "noqueue", [QDISC, system(qdisc_rules={"nd*": True, NAME: False})], "ok"),
    ("kept-qdiscs", "noqueue", [QDISC, system(qdisc_obstacle="netns")], None),
    ("kept-qdiscs", "noqueue", [system(qdisc_rules={"nd*": False})], None),
    ("kept-qdiscs", "nodrop", [QDISC], "ok"),
    ("kept-qdiscs", "nodrop", [QDISC, system(qdisc_obstacle="disabled")], "warn"),
    ("kept-qdiscs", "stock", [QDISC, system(qdisc_obstacle="dead")], "warn"),
    ("kept-qdiscs", "stock", [system(qdisc_rules_unread="It has other lines.")], "skipped"),
    ("driver-stock", "stock", [], "warn"),
    ("driver-stock", "stock", [QUIET], "note"),
    ("headers-missing", "stock", [QUIET, kernels({"headers": False})], "note"),
    ("headers-missing", "stock", [QUIET, TREE, kernels({"headers": False})], "warn"),
    ("kernel-pending", "stock", [QUIET, NEWER], "note"),
    ("kernel-pending", "nodrop", [QUIET, kernels({"nodrop": True}, LATER)], "warn"),
    ("default-qdisc", "nodrop", [QUIET, files(default_qdisc="pfifo_fast")], "note"),
    ("driver-stock", "stock", [BUILT_IN], "warn"),
    ("driver-stock", "stock", [BUILT_IN, files(vhost="10:238")], "warn"),
    ("driver-stock", "nodrop", [BESIDE], "ok"),
    ("driver-stock", "nodrop", [VHOST, BESIDE], None),
    ("module-old", "nodrop", [NODROP_KERNEL, VHOST, BESIDE, modules("bb", of="vhost")], "warn"),
    ("built-in-open", "nodrop", [VHOST, BESIDE, BEFORE], None),
    ("driver-stock", "stock", [NODROP_KERNEL], None),
    ("driver-stock", "nodrop", [], "ok"),
    ("module-old", "stock", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, STALE], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, modules("aa")], "ok"),
    ("module-old", "nodrop", [NODROP_KERNEL, modules(None)], "skipped"),
    ("module-old", "stock", [NODROP_KERNEL, BUILT_IN, beside(loaded="")], "warn"),
    ("module-old", "nodrop", [NODROP_KERNEL, BESIDE, beside(loaded="bb")], "ok"),
    ("module-old", "nodrop", [NODROP_KERNEL, BESIDE, beside(loaded="cc")], "warn"),
    ("built-in-open", "nodrop", [BESIDE, BEFORE], "warn"),
    ("built-in-open", "nodrop", [BESIDE], "ok"),
    ("built-in-open", "stock", [BUILT_IN], None),
    ("module-old", "stock", [NODROP_KERNEL, STALE, KLP], "warn"),
    ("module-old", "stock", [NODROP_KERNEL, modules("bb", of="tun"), KLP], "ok"),
    ("module-old", "stock", [modules("bb", of="tun"), KLP], "warn"),
    ("livepatch-other", "stock", [NODROP_KERNEL, KLP], "warn"),
    ("livepatch-other", "stock", [KLP], "note"),
    ("livepatch-other", "stock", [system(livepatch=True)], "ok"),
    ("livepatch-other", "stock", [], None),
    ("module-old", "nodrop", [LIVE, NODROP_KERNEL, STALE], None),
    ("default-off", "nodrop", [files(default="N")], "warn"),
    ("default-off", "nodrop", [], "ok"),
    ("default-off", "stock", [], None),
    ("guard-off", "nodrop", [files(guard_ms="0")], "warn"),
    ("guard-off", "nodrop", [], "ok"),
    ("livepatch-moving", "nodrop", [LIVE, machine(livepatch="moving")], "warn"),
    ("livepatch-moving", "nodrop", [LIVE], "ok"),
    ("livepatch-and-package", "nodrop", [LIVE, NODROP_KERNEL], "warn"),
    ("livepatch-and-package", "nodrop", [LIVE], "ok"),
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
    ("default-qdisc", "nodrop", [FULL, files(default_qdisc="pfifo_fast")], "warn"),
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
    ("vhost-stock", "nodrop", [VHOST], "warn"),
    ("vhost-stock", "nodrop", [VHOST, FOREIGN], "fail"),
    ("vhost-stock", "nodrop", [VHOST, BESIDE], "warn"),
    ("vhost-stock", "nodrop", [VHOST_NODROP], "ok"),
    ("vhost-stock", "nodrop", [], None),
    ("vhost-stock", "stock", [tap(), owner(vhost=1)], "ok"),
    ("ring-foreign", "nodrop", [FOREIGN], "fail"),
    ("ring-foreign", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [OFF], "warn"),
    ("nodrop-off", "nodrop", [], "ok"),
    ("nodrop-off", "nodrop", [LIVE, OFF], "warn"),
    ("nodrop-off", "stock", [tap(on="N")], "warn"),
    ("noqueue", "noqueue", [], "fail"),
    ("noqueue", "nodrop", [both("qdiscs.0.kind", "noqueue")], "warn"),
    ("noqueue", "nodrop", [], "ok"),
    ("noqueue", "noqueue", [DOWN], None),
    ("noqueue", "noqueue", [OFF], None),
    ("noqueue", "stock", [both("qdiscs.0.kind", "noqueue")], None),
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
    ("no-reader", "stock", [NO_READER], "warn"),
    ("no-reader", "stock", [], "ok"),
    ("no-reader", "stock", [NO_READER, DOWN], None),
    ("reader-stuck", "stuck", [], "fail"),
    ("reader-stuck", "stuck", [QUIET_GUARD], "fail"),
    ("reader-stuck", "stuck", [EMPTY], "fail"),
    ("reader-stuck", "stuck", [QUIET_GUARD, EMPTY], "ok"),
    ("reader-stuck", "stuck", [older], "fail"),
    ("reader-stuck", "stock", [], "ok"),
    ("reader-stuck", "stock", [NOTHING_DELIVERED], "fail"),
    ("reader-stuck", "nodrop", [], "ok"),
    ("reader-stuck", "nodrop", SECOND, "warn"),
    ("reader-stuck", "nodrop", [*SECOND, later(f"stats.{NAME}.tx1_ring", 1)], "fail"),
    ("reader-stuck", "nodrop", [*SECOND, BLOCKED], "fail"),
    ("reader-stuck", "nodrop", [*SECOND, BLOCKED, CALM], "warn"),
    ("reader-stuck", "nodrop", [*SECOND, older], "ok"),
    ("reader-stuck", "nodrop", [*SECOND, short], "ok"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=4, stalled_ms=12_300), short], "warn"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=0)], "ok"),
    ("reader-stuck", "nodrop", [*QUEUES, queue(1, ring=4, taken=20)], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep()], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep("T")], "warn"),
    ("reader-stuck", "nodrop", [*EDGE, asleep(), another_reader], "ok"),
    ("reader-stuck", "nodrop", [*EDGE, asleep(run=0.115)], "warn"),
    ("reader-stuck", "nodrop", [*SECOND, CALM, asleep(), another_reader, ONE_EDGE], "warn"),
    ("reader-edge", "nodrop", [*EDGE, asleep()], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), older], "fail"),
    ("reader-edge", "nodrop", [*BEHIND, asleep()], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), queue(ring=0, taken=80)], "ok"),
    ("reader-edge", "nodrop", [*BEHIND], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(run=0.115)], "note"),
    ("reader-edge", "nodrop", [*BEHIND, asleep(), another_reader], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=3, taken=1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), later(f"stats.{NAME}.tx0_ring", 1)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), queue(ring=0)], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), LOSES], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), TRIPS], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), short], "ok"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T")], "ok"),
    ("reader-edge", "nodrop", [*EDGE], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep(run=0.115)], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), another_reader], "fail"),
    ("reader-edge", "nodrop", [*EDGE, asleep("T"), another_reader], "ok"),
    ("reader-edge", "nodrop", [*SECOND, CALM, asleep(), another_reader, ONE_EDGE], "note"),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(edge=[])], None),
    ("reader-edge", "nodrop", [*EDGE, asleep(), owner(vhost=1)], None),
    ("delay", "nodrop", [], "warn"),
    ("delay", "nodrop", TRICKLE, "warn"),
    ("delay", "nodrop", [*TRICKLE, SAME_STOPS], "note"),
    ("delay", "nodrop", [*TRICKLE, SAME_STOPS, SMALLEST], "warn"),
    ("delay", "nodrop", [*TRICKLE, both("qdiscs.0.kind", "fq_codel")], "warn"),
    ("delay", "nodrop", [*TRICKLE, was_empty], "note"),
    ("delay", "nodrop", [queue(ring=4, taken=100), QUICK], "note"),
    ("delay", "nodrop", [CALM], "ok"),
    ("delay", "nodrop", [CALM, queue(ring=400, taken=100)], "note"),
    ("delay", "nodrop", [CALM, queue(ring=4)], "note"),
    ("delay", "nodrop", [BLOCKED], "note"),
    ("delay", "nodrop", [later("qdiscs.0.packets", -400)], None),
    ("delay", "stock", [tap()], "note"),
    ("delay", "stock", [], None),
    ("delay", "nodrop", [both("stats", {})], None),
    ("delay", "nodrop", [*SECOND, CALM, older], None),
    ("guard-tripped", "stuck", [], "warn"),
    ("guard-tripped", "nodrop", STALLED, "warn"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES], "fail"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES, older], "warn"),
    ("guard-tripped", "nodrop", [*STALLED, LOSES, REOPENED], "warn"),
    ("guard-tripped", "nodrop", [*STALLED, queue(ring=4, stalled_ms=12_300), LOSES], "warn"),
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
    ("kernel-instead", "stock", [owner(name="openvpn"), HAS, both(f"{INFO}.type", "tap")], None),
    ("kernel-instead", "stock", [owner(name="wireguard-go"), HAS], "note"),
    ("tunnel-drops", "stock", [tunnel(), later("links.0.stats64.tx.dropped", 3)], "fail"),
    ("tunnel-drops", "stock", [tunnel(dropped=3)], "warn"),
    ("tunnel-drops", "stock", [tunnel()], "ok"),
    ("tunnel-qdisc-drops", "stock", [tunnel(), FULL], "warn"),
    ("tunnel-qdisc-drops", "stock", [tunnel()], "ok"),
]


def changed(name: str, *changes: Change) -> dict[str, Any]:
    data = load("stock" if name == "stock" else "nodrop")
    for change in (*RECORDS[name], *changes):
        change(data)
    return data


def verdicts(data: dict[str, Any], check: str, device: str | None = NAME) -> list[Verdict]:
    """Return a check's only verdict, if it has one."""
    results = [
        finding.verdict
        for finding in doctor_command.examine(Record.from_json(data).observation())
        if (finding.id, finding.device) == (check, device)
    ]
    assert len(results) <= 1
    return results


@pytest.mark.parametrize(
    "check", sorted({*findings.MACHINE, *findings.RING, *findings.TUNNEL} - {"namespaces"})
)
def test_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone, which has no nodrop in PATH."""
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    bad = []
    rows = [row for row in [*MACHINE, *DEVICE] if row[0] == check]
    for row in rows:
        _, name, changes, severity = row
        results = verdicts(changed(name, *changes), check, NAME if row in DEVICE else None)
        assert [str(result.severity) for result in results] == ([severity] if severity else []), row
        assert any(result.cost for result in results) is (severity in BAD), row
        bad += results if severity in BAD else []
    assert 0 < len(bad) < len(rows)
    assert bad[0].fix
    for line in bad[0].commands:
        program, *words = shlex.split(line)
        assert program != "nodrop"
        if words[:2] == ["-m", "nodrop"]:
            cli.parser().parse_args(words[2:])


@pytest.mark.parametrize("path", ["/usr/bin/nodrop", None])
@pytest.mark.parametrize(
    ("check", "changes", "line"),
    [("driver-stock", [], "{} install"), ("module-old", [STALE], "{} reload")],
)
def test_fix_runs_here_and_the_livepatch_is_last(
    monkeypatch: pytest.MonkeyPatch, path: str | None, check: str, changes: list[Change], line: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: path)
    start = "nodrop" if path else "python3 -m nodrop"
    release = "6.12.90+deb13.1-amd64"
    installed = kernels({"nodrop": bool(changes), "release": release})
    patched = system(livepatch=True, release=release)
    (result,) = verdicts(changed("stock", *changes, installed, patched), check, None)
    assert result.commands[0] == line.format(start)
    assert result.fix[-1].startswith("#")
    assert result.fix[-1].endswith(f"{start} livepatch load")


def test_the_package_of_the_command_alone_installs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fixes, "_CLONE", False)
    for check, changes in (("driver-stock", []), ("kernel-pending", [NEWER])):
        (result,) = verdicts(changed("stock", *changes), check, None)
        assert not [line for line in result.commands if "nodrop" in line]
        assert any("nodrop-dkms" in line for line in result.fix)
    (result,) = verdicts(changed("stock", TREE), "driver-stock", None)
    assert result.commands[0].endswith("nodrop install")


def test_commands_for_odd_names_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/nodrop")
    odd = every(both("links.0.ifname", "--ph"), both("qdiscs.0.dev", "--ph"))
    flags = both("flags", {"--ph": {"nodrop": False}})
    for more, label in (([], "--ph"), ([both("name", "-x")], "-x/--ph")):
        (result,) = verdicts(changed("nodrop", odd, flags, *more), "nodrop-off", label)
        _, *words = shlex.split(result.commands[0])
        arguments = cli.parser().parse_args(words)
        assert (arguments.operands[0], arguments.netns or "") == ("--ph", label[:-5])


def test_all_modules_that_differ_are_named() -> None:
    """Also beside the kernel's own vhost_net, which keeps nodrop_tun from new opens."""
    beside_it = [NODROP_KERNEL, VHOST, BESIDE]
    for changes in ([NODROP_KERNEL, STALE], [*beside_it, STALE]):
        data = changed("nodrop", *changes)
        (result,) = verdicts(data, "module-old", None)
        for module in data["system"]["modules"]:
            assert module["name"] in result.seen
    (result,) = verdicts(
        changed("nodrop", *beside_it, modules("bb", of="vhost")), "module-old", None
    )
    assert "not those on disk" not in result.seen


def test_no_livepatch_beside_a_built_in_tun() -> None:
    release = "6.12.90-generic"
    patched = [system(livepatch=True, release=release), kernels({"release": release})]
    for changes, offered in (([], True), ([BUILT_IN], False)):
        (result,) = verdicts(changed("stock", *changes, *patched), "driver-stock", None)
        assert ("livepatch" in "\n".join(result.fix)) is offered


def test_checks_that_need_root_are_skipped() -> None:
    data = changed("stock", machine(holders=[], hidden=7, root=False))
    for sample in (data["before"], data["after"]):
        sample["unread"] = {"blue": "no right"}
    for check, device in (
        *(("reader-starved", NAME), ("reader-saturated", NAME)),
        ("namespaces", None),
    ):
        (result,) = verdicts(data, check, device)
        assert result.severity is Severity.SKIPPED


LATE = [tap(), files(tap_guard_ms="2000"), both(f"stats.{NAME}.rx0_guard_trips", 1)]
STOCK_TAP = [tap(on=None), TAP_DROPS]
RESTART = ["systemctl stop -- -a.service", "systemctl start -- -a.service"]
MORE_CPU = ["renice -n -5 -p 64", "systemctl set-property -- -a.service CPUWeight=1000"]
TXQUEUELEN = f"ip link set dev {NAME} txqueuelen 500"
FQ_CODEL = f"tc qdisc replace dev {NAME} root fq_codel"


@pytest.mark.parametrize(
    ("check", "name", "changes", "commands"),
    [
        ("noqueue", "noqueue", [], [f"nodrop set {NAME} qdisc fq_codel"]),
        ("bufferbloat", "nodrop", [], [FQ_CODEL]),
        # Each queue gets a qdisc.
        ("bufferbloat", "nodrop", QUEUES, [f"tc qdisc replace dev {NAME} root mq"]),
        # A shaper is not replaced.
        ("delay", "nodrop", [], [FQ_CODEL]),
        ("delay", "nodrop", [both("qdiscs.0.kind", "htb")], []),
        ("delay", "nodrop", [both("qdiscs.0.kind", "fq_codel")], []),
        ("guard-tripped", "nodrop", LATE, ["echo 10000 >/sys/module/tap/parameters/guard_ms"]),
        # A stopped reader is continued.
        ("reader-stuck", "stuck", [asleep("T")], ["kill -CONT 64"]),
        ("reader-stuck", "stuck", [asleep()], ["cat /proc/64/status /proc/64/wchan"]),
        ("nodrop-off", "stock", [tap(on="N")], ["echo Y >/sys/module/tap/parameters/nodrop"]),
        ("ring-drops", "stock", [BUILT_IN, system(livepatch=True)], ["nodrop install"]),
        ("ring-drops", "stock", [BUILT_IN, files(vhost="10:238")], []),
        ("ring-drops", "stock", [system(distribution="arch")], []),
        ("ring-drops", "stock", [BESIDE, owner(cgroup="0::/-a.service\n")], RESTART),
        ("reader-starved", "stock", [waits, owner(cgroup="0::/-a.service\n")], MORE_CPU),
        ("big-ring", "stock", [BESIDE, both("links.0.txqlen", 1000)], [TXQUEUELEN]),
        # A container has no command that helps.
        ("ring-drops", "stock", [*STOCK_TAP, system(container="docker")], []),
    ],
)
def test_commands(
    check: str,
    name: str,
    changes: list[Change],
    commands: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    (result,) = verdicts(changed(name, *changes), check)
    assert list(result.commands) == commands


def test_tap_is_replaced_with_its_users() -> None:
    (result,) = verdicts(changed("stock", *STOCK_TAP), "ring-drops")
    assert "modprobe -r macvtap ipvtap tap" in result.fix


@pytest.mark.parametrize(
    ("where", "prefix"),
    [("blue", "ip netns exec blue"), ("4711", "nsenter --net=/proc/4711/ns/net")],
)
def test_fix_is_for_the_namespace(where: str, prefix: str) -> None:
    data = changed("nodrop", both("name", where))
    (result,) = verdicts(data, "bufferbloat", f"{where}/{NAME}")
    assert result.fix == (f"{prefix} {FQ_CODEL}",)
    (result,) = verdicts(changed("noqueue", both("name", where)), "noqueue", f"{where}/{NAME}")
    assert result.fix[0].endswith(f"nodrop -n {where} set --now {NAME} qdisc fq_codel")


@pytest.mark.parametrize("kind", ["macvtap", "ipvtap"])
def test_macvtap_counts_received_packets_as_sent(kind: str) -> None:
    (link,) = Record.from_json(changed("stock", tap(kind))).observation(frozenset([NAME])).links
    one = link.now
    assert (one.kind, one.direct, one.driver, one.enabled) == (kind, True, Driver.NODROP, True)
    assert (one.tx_packets, one.tx_bytes, one.tx_dropped) == (1000, 90000, 70)
    assert (one.rx_packets, one.rx_bytes, one.rx_dropped) == (3, 300, 0)
    assert one.drops_by_cause == {"unheld": 70}
    assert (one.queue[0].ring_packets, one.queue[0].limit_packets) == (7, 20)
    assert [owner.name for owner in one.owners] == ["python3"]


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ([], "python3(64)"),
        ([another_reader], "one of python3(64), python3(226)"),
        ([another_reader, queue(0, ring=4)], "python3(64), python3(226)"),
        ([owner(tun=[NAME, NAME]), another_reader], "python3(64), python3(226)"),
    ],
)
def test_only_who_has_the_unread_queue_is_named(changes: list[Change], who: str) -> None:
    """Each has one queue of two, and nothing shows which."""
    (result,) = verdicts(changed("nodrop", *SECOND, *changes), "reader-stuck")
    assert result.seen.startswith(f"{who} d")


@pytest.mark.parametrize("share", [0.115, 0.9])
def test_watched_for_edges_by_a_thread_that_may_work(share: float) -> None:
    """Neither says that no packet waits, nor names a process that is not watched for edges."""
    changes = [*BEHIND, asleep(run=share), another_reader]
    (result,) = verdicts(changed("nodrop", *changes), "reader-edge")
    assert result.seen.startswith("3 packets wait in the ring for python3(64), which")
    assert f" uses {share:.0%} of a CPU" in result.cost
    assert result.numbers["queue0_taken_packets_per_s"] > 40


def numbers(check: str, *changes: Change) -> dict[str, float]:
    (result,) = verdicts(changed("nodrop", *changes), check)
    return result.numbers


def test_unread_queue_has_its_number_and_since_when() -> None:
    seconds = pytest.approx(49.63498112 - 47.79906304)
    second = {"dropped_packets_per_s": 0, "queue1_unread_s": seconds}
    one = numbers("reader-stuck", *SECOND)
    assert one == {**second, "unread_queues": 1, "ring_packets": 4}
    # It may have read some packets since the guard tripped.
    both_queues = numbers("reader-stuck", *SECOND, queue(0, ring=6, stalled_ms=12_300))
    assert both_queues == {
        **{**second, "unread_queues": 2, "ring_packets": 10},
        **{"queue0_unread_s": seconds, "queue0_stalled_s": 12.3},
    }
    edge = numbers("reader-edge", *EDGE, asleep())
    assert edge == {"ring_packets": 3, "queue0_unread_s": seconds}


WRAPS = [queue(ring=4), both(f"{TX0}_taken", (1 << 32) - 3), both(f"{TX0}_taken", 6, first=1)]


@pytest.mark.parametrize("changes", [[], WRAPS])
def test_stalled_reader_has_its_rate_and_since_when(changes: list[Change]) -> None:
    """What it took is modulo 2^32."""
    result = numbers("guard-tripped", *STALLED, *changes, both(f"{TX0}_stalled_ms", 12_300))
    assert result == {
        **{"guard_trips": 1, "queue0_stalled_s": 12.3},
        "queue0_taken_packets_per_s": pytest.approx(9 / 1.836, rel=0.01),
    }


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        # A pace of 100 us in a ring that was empty; 22,632 bytes, of which 20,240 left in 1.84 s.
        ([was_empty], {"ring_wait_ms": 0.2, "qdisc_wait_ms": 2053}),
        ([CALM, queue(ring=400, taken=100), was_empty], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # 100 packets in 1.84 s of a ring that was not, as with a reader that pauses.
        ([CALM, queue(ring=400, taken=100)], {"ring_wait_ms": 7344, "qdisc_wait_ms": 0}),
        # 100,000 packets.
        ([CALM, queue(ring=400, taken=10**5)], {"ring_wait_ms": 40, "qdisc_wait_ms": 0}),
        # Without a sample of its pace.
        ([CALM, queue(ring=4, taken=100), NO_PACE], {"ring_wait_ms": 73.4, "qdisc_wait_ms": 0}),
        ([CALM, queue(ring=4)], {"qdisc_wait_ms": 0}),
        ([BLOCKED, queue(ring=4)], {}),
        # The second queue of two.
        ([*SECOND, CALM], {"qdisc_wait_ms": 0}),
    ],
)
def test_delay_of_ring_and_qdisc(changes: list[Change], waits: dict[str, float]) -> None:
    result = numbers("delay", *changes)
    assert {key: of for key, of in result.items() if key.endswith("_ms")} == pytest.approx(
        waits, rel=0.01
    )
    assert result["queue"] == (1 if SECOND[-1] in changes else 0)


def test_reader_that_sets_the_pace_is_named() -> None:
    (result,) = verdicts(changed("nodrop", *TRICKLE), "delay")
    assert result.cost.startswith("python3(64) takes 4.4 packets/s")
    assert result.numbers["taken_packets_per_s"] == pytest.approx(8 / 1.836, rel=0.01)
    (shaped,) = verdicts(changed("nodrop", *TRICKLE, SAME_STOPS), "delay")
    assert "python3" not in shaped.cost, "the queue was not stopped"
