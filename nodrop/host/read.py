# SPDX-License-Identifier: GPL-2.0-only
"""Asks the kernel what virtual links there are."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nodrop.errors import NodropError
from nodrop.host import ethtool, namespaces, netns, owners
from nodrop.host.kinds import RINGS, is_shown
from nodrop.host.raw import HOLDERS, Raw, RawMachine, RawNamespace
from nodrop.livepatch import Livepatch
from nodrop.proc import require

TOOL_TIMEOUT_S = 20.0
_MACHINE_FILES = (
    "sys/class/misc/tun/dev",
    "sys/class/misc/vhost-net/dev",
    "sys/module/tun/version",
    "sys/module/tun/initstate",
    "sys/module/tun/parameters/nodrop",
    "sys/module/vhost_net/version",
    "sys/module/vhost_net/initstate",
    "sys/module/nodrop/parameters/guard_ms",
    "sys/module/nodrop/version",
    "sys/module/tap/version",
    "sys/module/tap/initstate",
    "sys/module/tap/parameters/nodrop",
    "proc/sys/net/core/default_qdisc",
)
_DEVICE_FILES = ("tun_flags",)
_QUEUE_FILES = ("limit", "inflight")


def read(where: str | None = None, *, everywhere: bool = False, closely: bool = False) -> Raw:
    """Read a machine.

    Args:
        where: a network namespace: name, pid, or file; None: the one that this runs in.
        everywhere: all that there are; those that cannot be read are named in the result.
        closely: with offloads and the MTUs of all links.

    Raises:
        NodropError: the namespace is not there or may not be entered, or iproute2 is missing.
    """
    unread: dict[str, str] = {}
    if everywhere:
        spaces = list(_all_namespaces(unread, closely))
    elif where is None:
        spaces = [namespace("", closely)]
    else:
        spaces = [_inside(where, where, closely)]
    return Raw(machine(spaces), spaces, unread)


def _all_namespaces(unread: dict[str, str], closely: bool) -> Iterable[RawNamespace]:
    own = namespace("", closely)
    yield own
    for space in namespaces.find():
        if space.inode == own.inode:
            continue
        try:
            yield _inside(space.path, space.name, closely)
        except NodropError as error:
            unread[space.name] = error.message


def _inside(path: str, name: str, closely: bool) -> RawNamespace:
    data = netns.run_inside(path, partial(_namespace_json, name, closely))
    return RawNamespace(**data)


def _namespace_json(name: str, closely: bool) -> dict[str, Any]:
    return dict(namespace(name, closely).__dict__)


def machine(spaces: list[RawNamespace], root: Path = Path("/")) -> RawMachine:
    """Read what all namespaces share.

    Args:
        spaces: those that were read.
        root: where ``sys`` and ``proc`` are.
    """
    files = {}
    for name in _MACHINE_FILES:
        with suppress(OSError):
            files[name] = (root / name).read_text().strip()
    # Who is built around the core is ours; the kernel's own vhost_net has a version, too.
    with suppress(OSError):
        files[HOLDERS] = " ".join(sorted(os.listdir(root / HOLDERS)))
    patch = Livepatch(root)
    livepatch = ""
    if patch.present:
        livepatch = "in" if patch.enabled and patch.settled else "moving"
    holders, hidden = owners.find(root / "proc")
    names = {space.inode: {link["ifname"] for link in space.links} for space in spaces}
    return RawMachine(
        release=os.uname().release,
        files=files,
        livepatch=livepatch,
        holders=owners.ask(holders, names),
        hidden=hidden,
        root=os.geteuid() == 0,
    )


def namespace(name: str, closely: bool = False) -> RawNamespace:
    """Read the namespace that this runs in.

    Raises:
        NodropError: iproute2 is missing or prints something unknown.
    """
    sure = netns.own_sys()
    everything = _tool("ip", "-d", "-s", "link")
    found = [link for link in everything if is_shown(link)]
    queued = qdiscs({link["ifname"] for link in found})
    sysfs, stats, flags, offloads = {}, {}, {}, {}
    for link in found:
        device = link["ifname"]
        if link["linkinfo"]["info_kind"] not in RINGS:
            continue
        if sure or is_here(link):
            sysfs[device] = _sysfs(device)
        with suppress(OSError):
            stats[device] = ethtool.stats(device)
        with suppress(OSError):
            flags[device] = ethtool.private_flags(device)
        if closely:
            with suppress(OSError):
                offloads[device] = ethtool.offloads(device)
    return RawNamespace(
        name=name,
        inode=netns.own(),
        links=found,
        qdiscs=queued,
        sysfs=sysfs,
        stats=stats,
        flags=flags,
        time_s=time.monotonic(),
        offloads=offloads,
        mtus={link["ifname"]: link["mtu"] for link in everything} if closely else {},
    )


def links() -> list[dict[str, Any]]:
    """Return the links that are shown, as ``ip -j -d -s link`` has them.

    Raises:
        NodropError: iproute2 is missing or prints something unknown.
    """
    return [link for link in _tool("ip", "-d", "-s", "link") if is_shown(link)]


def qdiscs(devices: Set[str]) -> list[dict[str, Any]]:
    """Return the qdiscs of devices, as ``tc -j -s qdisc`` has them.

    Raises:
        NodropError: iproute2 is missing or prints something unknown.
    """
    return [one for one in _tool("tc", "-s", "qdisc") if one.get("dev") in devices]


def sysfs(device: str) -> bytes:
    """Return a device's folder. Names are bytes to the kernel, whatever the locale says."""
    return b"/sys/class/net/" + device.encode(errors="surrogateescape")


def is_here(link: Mapping[str, Any]) -> bool:
    """Whether /sys shows that very link, and not one of another namespace by the same name."""
    with suppress(OSError, ValueError), open(sysfs(link["ifname"]) + b"/ifindex") as file:
        return int(file.read()) == int(link["ifindex"])
    return False


def sysfs_names(device: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files below a device's folder that are read: of the device, of its queues."""
    names = []
    with suppress(OSError):
        for queue in map(os.fsdecode, os.listdir(sysfs(device) + b"/queues")):
            if queue.startswith("tx-"):
                names += [f"queues/{queue}/byte_queue_limits/{one}" for one in _QUEUE_FILES]
    return _DEVICE_FILES, tuple(names)


def _sysfs(device: str) -> dict[str, str]:
    folder = sysfs(device)
    found = {}
    for name in (one for names in sysfs_names(device) for one in names):
        with suppress(OSError), open(folder + b"/" + name.encode(), encoding="ascii") as file:
            found[name] = file.read().strip()
    return found


def _tool(name: str, *words: str) -> list[dict[str, Any]]:
    argv = [require(name, "iproute2"), "-j", *words, "show"]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NodropError(
            f"'{name} {words[-1]}' did not end within {TOOL_TIMEOUT_S:g} s."
        ) from error
    if done.returncode != 0:
        raise NodropError(f"'{name} {words[-1]}' failed: {done.stderr.strip()}")
    try:
        # A device may be called anything, and a control character is printed as it is.
        found = json.loads(done.stdout or "[]", strict=False)
    except ValueError as error:
        raise NodropError(f"'{name} -j {words[-1]}' did not print JSON.") from error
    return [one for one in found if isinstance(one, dict) and one]
