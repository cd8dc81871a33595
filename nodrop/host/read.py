# SPDX-License-Identifier: GPL-2.0-only
"""Read the virtual links from the kernel."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodrop.errors import NodropError
from nodrop.host import ethtool, netns, owners
from nodrop.host.kinds import RINGS, is_shown
from nodrop.host.livepatch import Livepatch
from nodrop.host.raw import CHECKSUMS, HOLDERS, Raw, RawMachine, RawNamespace
from nodrop.host.threads import content
from nodrop.proc import ask, require

_MACHINE_FILES = (
    "sys/class/misc/tun/dev",
    "sys/class/misc/vhost-net/dev",
    "sys/module/tun/version",
    "sys/module/tun/initstate",
    "sys/module/tun/parameters/nodrop",
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

SPACES_S = 20.0
"""Time limit for reading all network namespaces, seconds."""


def read(where: str | None = None, *, everywhere: bool = False) -> Raw:
    """Read a machine.

    Args:
        where: a network namespace: name, PID or file; None: the caller's own.
        everywhere: read all namespaces. The result names those that cannot be read, and counts
            those that were not read within SPACES_S.

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
    end = time.monotonic() + SPACES_S
    found: list[RawNamespace] = []
    unread: dict[str, str] = {}
    unreached = 0
    own = netns.Space("", "/proc/self/ns/net", netns.own())
    for space in (own, *(one for one in netns.find() if one.inode != own.inode)):
        left = end - time.monotonic()
        if left <= 0:
            unreached += 1
            continue
        try:
            found.append(_inside(space.path, space.name, left))
        except NodropError as error:
            unread[space.name] = error.message
        except OSError as error:
            unread[space.name] = f"{error.strerror}."
    if not found:
        raise NodropError("No network namespace could be read.", next(iter(unread.values()), ""))
    return found, unread, unreached


def _inside(path: str, name: str, seconds: float | None = None) -> RawNamespace:
    return RawNamespace(
        **netns.run_inside(path, lambda: vars(namespace(name)), seconds, sysfs=False)
    )


def _machine(spaces: list[RawNamespace]) -> RawMachine:
    """Read the data that all namespaces share.

    Args:
        spaces: the namespaces that were read.
    """
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
    found = [link for link in tool("ip", "-d", "-s", "link") if is_shown(link)]
    names = {link["ifname"] for link in found}
    queued = [one for one in tool("tc", "-s", "qdisc") if one.get("dev") in names] if names else []
    now = time.monotonic()
    sysfs, stats, flags = {}, {}, {}
    rings = [link for link in found if link["linkinfo"]["info_kind"] in RINGS]
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
        links=found,
        qdiscs=queued,
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


def tool(name: str, *words: str) -> list[dict[str, Any]]:
    """Return the JSON of ``ip`` or ``tc``: ``tool("tc", "-s", "qdisc")``.

    Raises:
        NodropError: iproute2 is missing or fails, or its output is not JSON.
    """
    done = ask(require(name, "iproute2"), "-j", *words, "show")
    if done.returncode != 0:
        raise NodropError(f"'{name} {words[-1]}' failed: {done.stderr.strip()}")
    text = done.stdout or "[]"
    try:
        found = _parsed(text)
    except ValueError:
        try:
            found = _parsed(_RAW.sub("", text))
        except ValueError as error:
            raise NodropError(f"'{name} -j {words[-1]}' did not print JSON.") from error
    return [one for one in found if isinstance(one, dict) and one]


def _parsed(text: str) -> Any:
    # iproute2 prints control characters in names as they are.
    return json.loads(text, strict=False)
