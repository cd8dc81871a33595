# SPDX-License-Identifier: GPL-2.0-only
"""Reads a network namespace again and again, at little cost.

What hardly ever changes is kept, until the whole is asked for: flags of devices, which of them
have counters of their own, which files they have. A device whose qdisc and whose link counters
have not moved has moved nothing, so its own counters are kept as well.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from nodrop.host import ethtool, netns
from nodrop.host.kinds import RINGS
from nodrop.host.raw import RawNamespace
from nodrop.host.read import is_here, links, qdiscs, sysfs, sysfs_names

_FILE_MAX = 4096


@dataclass(frozen=True)
class _Kept:
    """What is kept of a device.

    Attributes:
        key: what must be the same for the rest to hold.
        flags: private flags; a driver without any has no counters and no byte queue limits.
        fixed: sysfs file -> content, of those that do not change.
        changing: sysfs files that do.
        moved: what link and qdisc counted when the rest was read; None: nobody counts.
        files: content of all files.
        stats: the driver's own counters; None: it has none.
    """

    key: tuple[str, Any]
    flags: dict[str, bool]
    fixed: dict[str, str]
    changing: tuple[str, ...]
    moved: list[Any] | None = None
    files: dict[str, str] = field(default_factory=dict)
    stats: dict[str, int] | None = None


class Again:
    """A namespace that is read again and again, by a process that is in it.

    Args:
        name: what people call it; "": the one that the command runs in.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._inode = netns.own()
        self._kept: dict[int, _Kept] = {}
        self._counters = ethtool.Counters()

    def read(self, *, whole: bool = False) -> RawNamespace:
        """Read it.

        Args:
            whole: take nothing for known.

        Raises:
            NodropError: iproute2 is missing or prints something unknown.
        """
        if whole:
            self._kept.clear()
            self._counters = ethtool.Counters()
        found = links()
        # Next to the links: these two make most of the rates.
        queued = qdiscs({link["ifname"] for link in found}) if found else []
        now = time.monotonic()
        moves = _moves(queued)
        kept, files, stats, flags = {}, {}, {}, {}
        for link in found:
            if link["linkinfo"]["info_kind"] not in RINGS:
                continue
            name = link["ifname"]
            one = kept[link["ifindex"]] = self._now(link, moves.get(name))
            files[name] = one.files
            if one.flags:
                flags[name] = one.flags
            if one.stats is not None:
                stats[name] = one.stats
        self._kept = kept
        return RawNamespace(
            name=self._name,
            inode=self._inode,
            links=found,
            qdiscs=queued,
            sysfs=files,
            stats=stats,
            flags=flags,
            time_s=now,
        )

    def _now(self, link: dict[str, Any], counted: list[Any] | None) -> _Kept:
        """Return a device, with what changes, which is read if anything has moved."""
        one = self._known(link)
        moved = counted and [link["stats64"]["tx"], *counted]
        if moved and one.moved == moved:
            return one
        name = link["ifname"]
        stats = None
        if one.flags:
            with suppress(OSError):
                stats = self._counters.read(name)
        files = {**one.fixed, **_files(name, one.changing)}
        return replace(one, moved=moved, files=files, stats=stats)

    def _known(self, link: dict[str, Any]) -> _Kept:
        name = link["ifname"]
        key = name, link["linkinfo"].get("info_data", {}).get("numqueues")
        known = self._kept.get(link["ifindex"])
        if known and known.key == key:
            return known
        flags: dict[str, bool] = {}
        with suppress(OSError):
            flags = ethtool.private_flags(name)
        fixed, changing = sysfs_names(name) if netns.own_sys() or is_here(link) else ((), ())
        return _Kept(key, flags, _files(name, fixed), changing if flags else ())


def _moves(qdiscs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return what the qdiscs of each device have counted; noqueue counts nothing."""
    found: dict[str, list[Any]] = {}
    for one in qdiscs:
        counted = [one.get(name) for name in ("packets", "qlen", "drops", "requeues")]
        if one.get("kind") != "noqueue":
            found.setdefault(one["dev"], []).append(counted)
    return found


def _files(device: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return what is in files of sysfs that are there; os.read() costs half of open()."""
    folder = sysfs(device)
    found = {}
    for name in names:
        with suppress(OSError):
            fd = os.open(folder + b"/" + name.encode(), os.O_RDONLY | os.O_CLOEXEC)
            try:
                found[name] = os.read(fd, _FILE_MAX).decode("ascii", "replace").strip()
            finally:
                os.close(fd)
    return found
