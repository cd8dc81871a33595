# SPDX-License-Identifier: GPL-2.0-only
"""Read the virtual links from the kernel, and build the model from the record of what was read.

A record can be stored as JSON; ``python -m nodrop.doctor FILE`` writes two of them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from nodrop.errors import NodropError
from nodrop.host import ethtool, netns, owners
from nodrop.host.counters import by_queue
from nodrop.host.livepatch import Livepatch
from nodrop.host.model import (
    DIRECT,
    RINGS,
    Device,
    Driver,
    Host,
    Module,
    Owner,
    Qdisc,
    Queue,
    is_shown,
    kind_of,
)
from nodrop.host.modules import BESIDE, IFF_BACKPRESSURE, TUNS
from nodrop.host.procfs import Holder, cgroup, content
from nodrop.proc import ask, require

HOLDERS = "sys/module/nodrop/holders"
"""Key of a machine's files: the modules that use nodrop's core, in one line."""

CHECKSUMS = "tx-checksumming"
"""Key of a device's flags: an offload that only its reader can switch on."""


_MACHINE_FILES = (
    "sys/class/misc/tun/dev",
    "sys/class/misc/vhost-net/dev",
    "sys/module/tun/version",
    "sys/module/tun/initstate",
    "sys/module/tun/parameters/nodrop",
    "sys/module/nodrop_tun/version",
    "sys/module/nodrop_tun/parameters/nodrop",
    "sys/module/vhost_net/version",
    "sys/module/vhost_net/initstate",
    "sys/module/nodrop/parameters/guard_ms",
    "sys/module/tap/version",
    "sys/module/tap/initstate",
    "sys/module/tap/parameters/nodrop",
    "sys/module/tap/parameters/guard_ms",
    "proc/sys/net/core/default_qdisc",
)
_RAW = re.compile(r'(?:(?<=:\{)|(?<=\d) )[^{}"]+(?=\})')
"""Text that iproute2 prints into its JSON: hfsc's options, and of older ones cbq's statistics and
others. No name of a device contains a colon or a space."""
NAMESPACES_S = 20.0
"""Time limit for reading all network namespaces, seconds."""

_Owners = dict[tuple[int, Union[str, int]], list[Owner]]
"""Key: inode of the namespace; name of a TUN or TAP device, or ifindex of a macvtap or ipvtap."""
_TAP_ON = "sys/module/tap/parameters/nodrop"
"""The switch of all macvtap and ipvtap devices; only nodrop's tap has it."""


@dataclass(frozen=True)
class RawNamespace:
    """One network namespace.

    Attributes:
        name: its name for messages; "": the command's own.
        links: ``ip -j -d -s link``.
        qdiscs: ``tc -j -s qdisc``.
        sysfs: device without nodrop's flag -> file below /sys/class/net/DEVICE -> content.
        stats: device -> ``ethtool -S``, if the driver has counters.
        flags: device -> private flags, if the driver has any; CHECKSUMS, if it is persistent.
        time_s: when it was read, monotonic.
    """

    name: str
    inode: int
    links: list[dict[str, Any]]
    qdiscs: list[dict[str, Any]]
    sysfs: dict[str, dict[str, str]]
    stats: dict[str, dict[str, int]]
    flags: dict[str, dict[str, bool]]
    time_s: float


@dataclass(frozen=True)
class RawMachine:
    """The data that all namespaces of a machine share.

    Attributes:
        files: path -> content of the files below /sys and /proc/sys that exist.
        livepatch: state of nodrop's livepatch: "" (not loaded), "in" (loaded), "moving" (in
            transition).
        holders: processes that have the drivers' device nodes open.
        hidden: number of processes that could not be inspected.
        root: whether the command ran as root.
    """

    release: str
    files: dict[str, str]
    livepatch: str
    holders: list[Holder]
    hidden: int
    root: bool


@dataclass(frozen=True)
class Raw:
    """A machine at one time.

    Attributes:
        unread: namespaces that could not be read -> reason, as a sentence.
        unreached: number of namespaces that were not read in time.
    """

    machine: RawMachine
    namespaces: list[RawNamespace]
    unread: dict[str, str] = field(default_factory=dict)
    unreached: int = 0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Raw:
        """Return a record from its JSON; TypeError if it has other fields."""
        machine = dict(data["machine"])
        machine["holders"] = [Holder(**holder) for holder in machine["holders"]]
        namespaces = [RawNamespace(**namespace) for namespace in data["namespaces"]]
        return cls(**{**data, "machine": RawMachine(**machine), "namespaces": namespaces})


def read(where: str | None = None, *, everywhere: bool = False) -> Raw:
    """Read a machine.

    Args:
        where: a network namespace: name, PID or file; None: the caller's own.
        everywhere: read all namespaces. The result names those that cannot be read, and counts
            those that were not read within NAMESPACES_S.

    Raises:
        NodropError: the namespace does not exist or cannot be entered, or iproute2 is missing.
    """
    if everywhere:
        spaces, unread, unreached = _all_namespaces()
        return Raw(_machine(spaces), spaces, unread, unreached)
    spaces = [namespace("") if where is None else _inside(where, where)]
    return Raw(_machine(spaces), spaces)


def _all_namespaces() -> tuple[list[RawNamespace], dict[str, str], int]:
    """Return what was read, the reasons for unreadable ones, and the number not read in time."""
    require("ip", "iproute2")
    end = time.monotonic() + NAMESPACES_S
    spaces: list[RawNamespace] = []
    unread: dict[str, str] = {}
    unreached = 0
    own = netns.Namespace("", "/proc/self/ns/net", netns.own())
    for space in (own, *(other for other in netns.find() if other.inode != own.inode)):
        left = end - time.monotonic()
        if left <= 0:
            unreached += 1
            continue
        try:
            spaces.append(_inside(space.path, space.name, left))
        except NodropError as error:
            unread[space.name] = error.message
        except OSError as error:
            unread[space.name] = f"{error.strerror}."
    if not spaces:
        raise NodropError("No network namespace could be read.", next(iter(unread.values()), ""))
    return spaces, unread, unreached


def _inside(path: str, name: str, seconds: float | None = None) -> RawNamespace:
    return RawNamespace(
        **netns.run_inside(path, lambda: vars(namespace(name)), seconds, sysfs=False)
    )


def _machine(spaces: list[RawNamespace]) -> RawMachine:
    """Read the data that all namespaces share."""
    files = {}
    for name in _MACHINE_FILES:
        with suppress(OSError):
            files[name] = Path("/", name).read_text().strip()
    # A module that uses the core is nodrop's; a version proves nothing: stock vhost_net has one.
    with suppress(OSError):
        files[HOLDERS] = " ".join(sorted(os.listdir(f"/{HOLDERS}")))
    patch = Livepatch()
    livepatch = ""
    if patch.present:
        livepatch = "in" if patch.enabled and patch.settled else "moving"
    holders, hidden = owners.find()
    names = {space.inode: {link["ifname"] for link in space.links} for space in spaces}
    return RawMachine(
        release=os.uname().release,
        files=files,
        livepatch=livepatch,
        holders=owners.ask(holders, names),
        hidden=hidden,
        root=os.geteuid() == 0,
    )


def namespace(name: str) -> RawNamespace:
    """Read the caller's network namespace.

    Raises:
        NodropError: iproute2 is missing, or its output is not understood.
    """
    links = [link for link in tool("ip", "-d", "-s", "link") if is_shown(link)]
    names = {link["ifname"] for link in links}
    qdiscs = (
        [qdisc for qdisc in tool("tc", "-s", "qdisc") if qdisc.get("dev") in names] if names else []
    )
    now = time.monotonic()
    sysfs, stats, flags = {}, {}, {}
    rings = [link for link in links if link["linkinfo"]["info_kind"] in RINGS]
    sure = bool(rings) and netns.own_sys()
    with ethtool.Socket() as sock:
        for link in rings:
            device = link["ifname"]
            with suppress(OSError):
                stats[device] = ethtool.stats(device, sock)
            with suppress(OSError):
                flags[device] = ethtool.private_flags(device, sock)
                if link["linkinfo"].get("info_data", {}).get("persist"):
                    flags[device][CHECKSUMS] = ethtool.checksums(device, sock)
            # Only a device without nodrop's flag may have upstream's.
            if "nodrop" not in flags.get(device, ()) and (sure or _is_here(link)):
                sysfs[device] = _sysfs(device)
    return RawNamespace(
        name=name,
        inode=netns.own(),
        links=links,
        qdiscs=qdiscs,
        sysfs=sysfs,
        stats=stats,
        flags=flags,
        time_s=now,
    )


def _folder(device: str) -> bytes:
    """Return a device's directory in /sys as bytes, since the kernel's names have no encoding."""
    return b"/sys/class/net/" + device.encode(errors="surrogateescape")


def _is_here(link: Mapping[str, Any]) -> bool:
    """Return whether /sys shows this link, and not one of the same name in another namespace."""
    with suppress(OSError, ValueError):
        return int(content(_folder(link["ifname"]) + b"/ifindex")) == int(link["ifindex"])
    return False


def _sysfs(device: str) -> dict[str, str]:
    with suppress(OSError):
        return {"tun_flags": content(_folder(device) + b"/tun_flags").strip()}
    return {}


def tool(name: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the JSON of ``ip`` or ``tc``: ``tool("tc", "-s", "qdisc")``.

    Raises:
        NodropError: iproute2 is missing or fails, or its output is not JSON.
    """
    done = ask(require(name, "iproute2"), "-j", *arguments, "show")
    if done.returncode != 0:
        raise NodropError(f"'{name} {arguments[-1]}' failed: {done.stderr.strip()}")
    text = done.stdout or "[]"
    try:
        objects = _parsed(text)
    except ValueError:
        try:
            objects = _parsed(_RAW.sub("", text))
        except ValueError as error:
            raise NodropError(f"'{name} -j {arguments[-1]}' did not print JSON.") from error
    return [entry for entry in objects if isinstance(entry, dict) and entry]


def _parsed(text: str) -> Any:
    # iproute2 prints control characters in names as they are.
    return json.loads(text, strict=False)


def build(raw: Raw) -> Host:
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
    value = machine.files.get(f"sys/module/{module}/parameters/guard_ms")
    return int(value) if value else None


def _module(machine: RawMachine, name: str) -> Module:
    folder = f"sys/module/{name}"
    loaded = f"sys/class/misc/{name.replace('_', '-')}/dev" in machine.files
    built_in = loaded and f"{folder}/initstate" not in machine.files
    if name == "tun" and built_in:
        folder = f"sys/module/{BESIDE}"
    if Path(folder).name in machine.files.get(HOLDERS, "").split():
        return Module(loaded, built_in, Driver.NODROP, machine.files.get(f"{folder}/version", ""))
    live = loaded and machine.livepatch == "in"
    return Module(loaded, built_in, Driver.LIVE if live else Driver.STOCK, "")


def _tap(machine: RawMachine) -> Module:
    files = machine.files
    loaded = "sys/module/tap/initstate" in files
    if loaded and _TAP_ON in files:
        return Module(loaded, False, Driver.NODROP, files.get("sys/module/tap/version", ""))
    return Module(loaded, False, Driver.STOCK, "")


def _parameter(machine: RawMachine) -> str | None:
    """Return the switch of nodrop's tun; None: it is not loaded."""
    values = (machine.files.get(f"sys/module/{name}/parameters/nodrop") for name in TUNS)
    return next((value for value in values if value is not None), None)


def _default(machine: RawMachine) -> bool | None:
    value = _parameter(machine)
    if value is not None:
        return value in ("Y", "1")
    return True if machine.livepatch == "in" else None


def _devices(machine: RawMachine, space: RawNamespace, owners: _Owners) -> Iterable[Device]:
    qdiscs: dict[str, list[dict[str, Any]]] = {}
    for qdisc in space.qdiscs:
        qdiscs.setdefault(qdisc["dev"], []).append(qdisc)
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
    each = tuple(map(_qdisc, qdiscs))
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
        qdisc=each[0] if alone else _root_qdisc(link, qdiscs),
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
        altnames=tuple(link.get("altnames", ())),
    )


def _driver(
    machine: RawMachine, kind: str, flags: Mapping[str, bool], files: Mapping[str, str]
) -> Driver | None:
    if kind not in RINGS:
        return None
    if kind in DIRECT:
        return _tap(machine).driver
    if "nodrop" in flags:
        return Driver.LIVE if _parameter(machine) is None else Driver.NODROP
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
    owners: _Owners = {}
    for holder in holders:
        devices: Counter[Any] = Counter([*holder.tun, *holder.tap])
        known = len(devices) == 1 and not holder.vhost_others
        owner = Owner(
            pid=holder.pid,
            name=holder.name,
            user=holder.user,
            queues=1,
            vhost=holder.vhost > 0,
            cgroup=cgroup(holder.cgroup, holder.guest),
            vhost_workers=[{**worker, "device_known": known} for worker in holder.workers],
        )
        for device, queues in devices.items():
            inode = holder.device_netns.get(device, holder.netns)
            here = replace(owner, queues=queues, edge=holder.edge.count(device))
            owners.setdefault((inode, device), []).append(here)
    return owners


def _attached(link: Mapping[str, Any], data: Mapping[str, Any], owners: tuple[Owner, ...]) -> int:
    if "numqueues" in data:
        return int(data["numqueues"])
    if link["linkinfo"]["info_kind"] == "tun":
        return 1 if "LOWER_UP" in link["flags"] or owners else 0
    return sum(owner.queues for owner in owners)


def _queues(count: int, stats: Mapping[str, int], bands: Mapping[int, Qdisc]) -> tuple[Queue, ...]:
    counters = {**{index: {} for index in range(count)}, **by_queue(stats)}
    return tuple(Queue(index, counters[index], bands.get(index)) for index in sorted(counters))


def _root_qdisc(link: Mapping[str, Any], qdiscs: list[dict[str, Any]]) -> Qdisc:
    """Return the root of a device's qdiscs, with the kinds and flows of all of them."""
    root = next((qdisc for qdisc in qdiscs if qdisc.get("root")), {})
    leaves = {qdisc["kind"] for qdisc in qdiscs if not qdisc.get("root") and qdisc.get("kind")}
    leaves -= {"clsact", "ingress"}
    qdisc = _qdisc({"kind": link.get("qdisc", ""), **root})
    return replace(qdisc, leaves=tuple(sorted(leaves)), flows=_flows(qdiscs))


def _bands(qdiscs: list[dict[str, Any]]) -> dict[int, Qdisc]:
    """Return the children of mq by queue index; the parent of the first is ``:1``."""
    root = next((qdisc for qdisc in qdiscs if qdisc.get("root")), {})
    if root.get("kind") != "mq":
        return {}
    bands = {}
    for qdisc in qdiscs:
        major, _, minor = qdisc.get("parent", "").partition(":")
        if minor and major in ("", root.get("handle", "").rstrip(":")):
            with suppress(ValueError):
                bands[int(minor, 16) - 1] = _qdisc(qdisc)
    return bands


def _qdisc(entry: Mapping[str, Any]) -> Qdisc:
    """Return a qdisc from its entry in tc's JSON."""
    limit = entry.get("options", {}).get("limit")
    return Qdisc(
        kind=entry["kind"],
        leaves=(),
        limit_packets=limit if isinstance(limit, int) else None,
        queued_packets=entry.get("qlen", 0),
        queued_bytes=entry.get("backlog", 0),
        drops=entry.get("drops", 0),
        requeues=entry.get("requeues", 0),
        limit_drops=entry.get("drop_overlimit"),
        sent_packets=entry.get("packets", 0),
        sent_bytes=entry.get("bytes", 0),
        flows=_flows([entry]),
        ecn_marks=entry.get("ecn_mark"),
        target_us=entry.get("options", {}).get("target") if entry["kind"] == "fq_codel" else None,
        handle=entry.get("handle", ""),
        parent=entry.get("parent", ""),
    )


def _flows(qdiscs: Iterable[Mapping[str, Any]]) -> int | None:
    names = ("new_flows_len", "old_flows_len")
    lengths = [qdisc[name] for qdisc in qdiscs for name in names if name in qdisc]
    return sum(lengths) if lengths else None
