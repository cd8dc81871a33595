# SPDX-License-Identifier: GPL-2.0-only
"""Changes to a recorded machine (hosts.py), and the verdicts of doctor's checks on it."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from hosts import KERNEL, NAME, get_at, load, set_at

from nodrop import cli
from nodrop.commands import doctor as doctor_command
from nodrop.doctor import findings
from nodrop.doctor.findings import Verdict
from nodrop.doctor.observation import Record

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
FOREIGN = later(f"{TX0}_drop_foreign", 5)
TAP_DROPS = later("links.0.stats64.rx.dropped", 60)
FULL = later("qdiscs.0.drops", 50)
TARGET_5, TARGET_30 = (
    [both("qdiscs.0.kind", "fq_codel"), both("qdiscs.0.options.target", us)] for us in (4999, 29999)
)
MANY_FLOWS = every(both("qdiscs.0.new_flows_len", 5), both("qdiscs.0.old_flows_len", 8))
AT_LIMIT = every(both("qdiscs.0.drop_overlimit", 7), later("qdiscs.0.drop_overlimit", 50))
FEW = every(later("qdiscs.0.drops", 1), later("qdiscs.0.packets", 1000))
DOWN = both("links.0.flags", ["POINTOPOINT"])
OFF = both(f"flags.{NAME}.nodrop", False)
QUEUES = [both(f"{INFO}.multi_queue", True), both(f"{INFO}.numqueues", 2)]
TREE = system(tree=True)
EMPTY = both(f"{TX0}_ring", 0)
STALE = modules("bb")
NOTHING_DELIVERED = unchanged(SENT, f"{TX0}_taken")
# Nothing is in the qdisc; nothing leaves it, and nothing comes into it.
CALM = every(both("qdiscs.0.qlen", 0), both("qdiscs.0.backlog", 0))
BLOCKED = unchanged("qdiscs")
LIVE = every(files(version=None, default=None, holders="nodrop_live"), machine(livepatch="in"))
# The kernel's own module has a version, too.
VHOST = every(owner(vhost=1), files(vhost="10:238", vhost_version="0.0.1"))
BUILT_IN = files(initstate=None, version=None, default=None, holders=None)
BESIDE = every(BUILT_IN, files(beside="Y", beside_version="1.0.0", holders="nodrop_tun"))
SECOND = [*QUEUES, queue(1, ring=4)]


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


def sockets(*found: dict[str, int]) -> Change:
    """What waits in the reader's sockets: in both samples, or in each."""

    def change(data: dict[str, Any]) -> None:
        pid = samples(data, "machine")[0]["holders"][0]["pid"]
        for when, values in zip(("before", "after"), (found * 2)[:2], strict=True):
            data[f"sockets_{when}"] = {
                str(pid): {"unread": 0, "unsent": 0, "unacknowledged": 0, **values}
            }

    return change


def older(data: dict[str, Any]) -> None:
    """The driver counts neither what its reader took, nor since when it is stalled."""
    for space in spaces(data):
        for name in [name for name in space["stats"][NAME] if name.endswith(("taken", "d_ms"))]:
            del space["stats"][NAME][name]


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


def numbers(check: str, *changes: Change) -> dict[str, float]:
    (result,) = verdicts(changed("nodrop", *changes), check)
    return result.numbers


def checks_of(module: ModuleType) -> list[str]:
    """Return the ids of a module's checks."""
    checks = {**findings.MACHINE, **findings.RING, **findings.TUNNEL}
    return sorted(name for name, check in checks.items() if check.__module__ == module.__name__)


def assert_verdicts(rows: list[Row], check: str, device: str | None = NAME) -> None:
    """Compare a check's verdicts with those of its rows; parse the commands of its first repair."""
    bad = []
    rows = [row for row in rows if row[0] == check]
    for row in rows:
        _, name, changes, severity = row
        results = verdicts(changed(name, *changes), check, device)
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
