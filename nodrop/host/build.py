# SPDX-License-Identifier: GPL-2.0-only
"""Builds the model from what was read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from nodrop.host import cgroup
from nodrop.host.kinds import DIRECT, RINGS, kind_of
from nodrop.host.model import Device, Driver, Host, Module, Owner, Qdisc, Queue
from nodrop.host.raw import CHECKSUMS, HOLDERS, Holder, Raw, RawMachine, RawNamespace

IFF_BACKPRESSURE = 0x0080
"""Flag by which an application requests backpressure from the stock driver of Linux 7.3."""

_Owners = dict[tuple[int, str | int], list[Owner]]
"""Key: inode of the namespace; name of a TUN or TAP device, or ifindex of a macvtap or ipvtap."""
_COUNTER = re.compile(r"[tr]x(?P<queue>\d+)_(?P<name>\w+)")
_TAP_ON = "sys/module/tap/parameters/nodrop"
"""The switch of all macvtap and ipvtap devices; only nodrop's tap has it."""


def build(raw: Raw) -> Host:
    """Return the model of a machine."""
    machine = raw.machine
    files = machine.files
    owners = _owners(machine.holders)
    return Host(
        release=machine.release,
        tun=_module(machine, "tun"),
        vhost_net=_module(machine, "vhost_net"),
        default_on=_default(machine),
        guard_ms=_guard(machine, "nodrop"),
        default_qdisc=files.get("proc/sys/net/core/default_qdisc", ""),
        hidden_processes=machine.hidden,
        unread=raw.unread,
        time_s=max((space.time_s for space in raw.namespaces), default=0.0),
        devices=tuple(
            device for space in raw.namespaces for device in _devices(machine, space, owners)
        ),
        moving=machine.livepatch == "moving",
        root=machine.root,
        unreached=raw.unreached,
        tap=_tap(machine),
        tap_guard_ms=_guard(machine, "tap"),
    )


def _guard(machine: RawMachine, module: str) -> int | None:
    said = machine.files.get(f"sys/module/{module}/parameters/guard_ms")
    return int(said) if said else None


def _module(machine: RawMachine, name: str) -> Module:
    folder = f"sys/module/{name}"
    loaded = f"sys/class/misc/{name.replace('_', '-')}/dev" in machine.files
    built_in = loaded and f"{folder}/initstate" not in machine.files
    if name in machine.files.get(HOLDERS, "").split():
        return Module(loaded, built_in, Driver.NODROP, machine.files.get(f"{folder}/version", ""))
    live = loaded and machine.livepatch == "in"
    return Module(loaded, built_in, Driver.LIVE if live else Driver.STOCK, "")


def _tap(machine: RawMachine) -> Module:
    files = machine.files
    loaded = "sys/module/tap/initstate" in files
    if loaded and _TAP_ON in files:
        return Module(loaded, False, Driver.NODROP, files.get("sys/module/tap/version", ""))
    return Module(loaded, False, Driver.STOCK, "")


def _default(machine: RawMachine) -> bool | None:
    said = machine.files.get("sys/module/tun/parameters/nodrop")
    if said is not None:
        return said in ("Y", "1")
    return True if machine.livepatch == "in" else None


def _devices(machine: RawMachine, space: RawNamespace, owners: _Owners) -> Iterable[Device]:
    qdiscs: dict[str, list[dict[str, Any]]] = {}
    for one in space.qdiscs:
        qdiscs.setdefault(one["dev"], []).append(one)
    for link in space.links:
        yield _device(machine, space, link, qdiscs.get(link["ifname"], []), owners)


def _device(
    machine: RawMachine,
    space: RawNamespace,
    link: Mapping[str, Any],
    qdiscs: list[dict[str, Any]],
    all_owners: _Owners,
) -> Device:
    name = link["ifname"]
    info = link["linkinfo"]
    data = info.get("info_data", {})
    kind = kind_of(link)
    ring = info["info_kind"] in RINGS
    direct = info["info_kind"] in DIRECT
    tx, rx = (link["stats64"][way] for way in (("rx", "tx") if direct else ("tx", "rx")))
    files = space.sysfs.get(name, {})
    flags = space.flags.get(name, {})
    driver = _driver(machine, info["info_kind"], flags, files)
    key = name if info["info_kind"] == "tun" else link["ifindex"]
    owners = tuple(all_owners.get((space.inode, key), ())) if ring else ()
    attached = _attached(link, data, owners)
    flag = link["flags"]
    each = tuple(_one_qdisc(one, (), _flows([one])) for one in qdiscs)
    alone = len(each) == 1 and qdiscs[0].get("root")
    return Device(
        name=name,
        ifindex=link["ifindex"],
        netns=space.name,
        netns_inode=space.inode,
        kind=kind,
        tunnel=not ring,
        up="UP" in flag,
        carrier="LOWER_UP" in flag,
        mtu=link["mtu"],
        driver=driver,
        enabled=_enabled(machine, flags, driver, direct=direct),
        txqueuelen=link.get("txqlen", 0),
        qdisc=each[0] if alone else _qdisc(link, qdiscs),
        queues=attached,
        queues_max=link.get("num_tx_queues", 1),
        queue=_queues(attached if ring else 0, space.stats.get(name, {}), _bands(qdiscs)),
        multi_queue=data.get("multi_queue"),
        vnet_hdr=data.get("vnet_hdr"),
        persist=data.get("persist"),
        owners=owners,
        tx_packets=tx["packets"],
        tx_bytes=tx["bytes"],
        tx_dropped=tx["dropped"],
        rx_packets=rx["packets"],
        rx_bytes=rx["bytes"],
        rx_dropped=rx["dropped"],
        qdiscs=each,
        checksums=flags.get(CHECKSUMS, False),
    )


def _driver(
    machine: RawMachine, kind: str, flags: Mapping[str, bool], files: Mapping[str, str]
) -> Driver | None:
    if kind not in RINGS:
        return None
    if kind in DIRECT:
        return _tap(machine).driver
    if "nodrop" in flags:
        module = machine.files.get("sys/module/tun/parameters/nodrop")
        return Driver.LIVE if module is None else Driver.NODROP
    try:
        asked = int(files.get("tun_flags", "0"), 16) & IFF_BACKPRESSURE
    except ValueError:
        asked = 0
    return Driver.UPSTREAM if asked else Driver.STOCK


def _enabled(
    machine: RawMachine, flags: Mapping[str, bool], driver: Driver | None, *, direct: bool
) -> bool:
    if direct:
        return machine.files.get(_TAP_ON) in ("Y", "1")
    return flags.get("nodrop", False) or driver is Driver.UPSTREAM


def _owners(holders: Iterable[Holder]) -> _Owners:
    """Return the owners of each device."""
    found: _Owners = {}
    for holder in holders:
        devices: Counter[Any] = Counter([*holder.tun, *holder.tap])
        known = len(devices) == 1 and not holder.vhost_others
        one = Owner(
            pid=holder.pid,
            name=holder.name,
            user=holder.user,
            queues=1,
            vhost=holder.vhost > 0,
            place=cgroup.place(holder.cgroup, holder.guest),
            vhost_workers=[{**worker, "device_known": known} for worker in holder.workers],
        )
        for device, queues in devices.items():
            inode = holder.device_netns.get(device, holder.netns)
            owner = replace(one, queues=queues, edge=holder.edge.count(device))
            found.setdefault((inode, device), []).append(owner)
    return found


def _attached(link: Mapping[str, Any], data: Mapping[str, Any], owners: tuple[Owner, ...]) -> int:
    if "numqueues" in data:
        return int(data["numqueues"])
    if link["linkinfo"]["info_kind"] == "tun":
        return 1 if "LOWER_UP" in link["flags"] or owners else 0
    return sum(owner.queues for owner in owners)


def _queues(count: int, stats: Mapping[str, int], bands: Mapping[int, Qdisc]) -> tuple[Queue, ...]:
    counters: dict[int, dict[str, int]] = {index: {} for index in range(count)}
    for name, value in stats.items():
        if found := place(name):
            counters.setdefault(found[0], {})[found[1]] = value
    return tuple(Queue(index, counters[index], bands.get(index)) for index in sorted(counters))


@lru_cache(8192)
def place(counter: str) -> tuple[int, str] | None:
    """Return the queue and name of a counter of ``ethtool -S``: ``tx0_stops``; None: not nodrop's.

    Most devices have the same ones, hence the cache.
    """
    match = _COUNTER.fullmatch(counter)
    return (int(match["queue"]), match["name"]) if match else None


def _qdisc(link: Mapping[str, Any], qdiscs: list[dict[str, Any]]) -> Qdisc:
    root = next((one for one in qdiscs if one.get("root")), {})
    leaves = {one["kind"] for one in qdiscs if not one.get("root") and one.get("kind")}
    leaves -= {"clsact", "ingress"}
    said = {"kind": link.get("qdisc", ""), **root}
    return _one_qdisc(said, tuple(sorted(leaves)), _flows(qdiscs))


def _bands(qdiscs: list[dict[str, Any]]) -> dict[int, Qdisc]:
    """Return the children of mq by queue index; the parent of the first is ``:1``."""
    root = next((one for one in qdiscs if one.get("root")), {})
    if root.get("kind") != "mq":
        return {}
    found = {}
    for one in qdiscs:
        major, _, minor = one.get("parent", "").partition(":")
        if minor and major in ("", root.get("handle", "").rstrip(":")):
            with suppress(ValueError):
                found[int(minor, 16) - 1] = _one_qdisc(one, (), _flows([one]))
    return found


def _one_qdisc(said: Mapping[str, Any], leaves: tuple[str, ...], flows: int | None) -> Qdisc:
    limit = said.get("options", {}).get("limit")
    return Qdisc(
        kind=said["kind"],
        leaves=leaves,
        limit_packets=limit if isinstance(limit, int) else None,
        queued_packets=said.get("qlen", 0),
        queued_bytes=said.get("backlog", 0),
        drops=said.get("drops", 0),
        requeues=said.get("requeues", 0),
        sent_packets=said.get("packets", 0),
        sent_bytes=said.get("bytes", 0),
        flows=flows,
        ecn_marks=said.get("ecn_mark"),
        handle=said.get("handle", ""),
        parent=said.get("parent", ""),
    )


def _flows(qdiscs: Iterable[Mapping[str, Any]]) -> int | None:
    names = ("new_flows_len", "old_flows_len")
    found = [one[name] for one in qdiscs for name in names if name in one]
    return sum(found) if found else None
