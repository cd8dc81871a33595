# SPDX-License-Identifier: GPL-2.0-only
"""Find the processes that have virtual links open, from /proc."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodrop.host import threads
from nodrop.host.raw import Holder
from nodrop.host.threads import content

# For a process with another root directory, the paths begin with that directory.
_TUN = "/dev/net/tun"
_VHOST = "/dev/vhost-"
_TAP = re.compile(r".*/dev/tap(?P<ifindex>[0-9]+)")
_TUNGETDEVNETNS = 0x54E3
_PIDFD_GETFD = 438
_GONE = (FileNotFoundError, ProcessLookupError)


def find(proc: Path = Path("/proc")) -> tuple[list[Holder], int]:
    """Return those processes, and the number of processes that could not be inspected.

    Processes that exit meanwhile are left out.
    """
    holders = []
    hidden = 0
    workers: dict[int, list[dict[str, Any]]] = {}
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return [], 1
    for pid in pids:
        try:
            holder = _holder(f"{proc}/{pid}", pid)
        except _GONE:
            continue
        except OSError:
            hidden += 1
        else:
            if holder:
                holders.append(holder)
    for one in threads.read([holder.pid for holder in holders if holder.vhost], proc):
        if one.vhost:
            workers.setdefault(one.pid, []).append(
                {"name": one.name, "tid": one.tid, "cpu": one.cpu}
            )
    return [replace(one, workers=workers.get(one.pid, [])) for one in holders], hidden


def _holder(folder: str, pid: int) -> Holder | None:
    tun, tap, vhost, others = [], [], 0, 0
    for number in os.listdir(f"{folder}/fd"):
        try:
            target = os.readlink(f"{folder}/fd/{number}")
            if target.endswith(_TUN):
                tun.extend(_attached(folder, number))
        except _GONE:
            continue
        if _VHOST in target:
            vhost += target.endswith("/dev/vhost-net")
            others += not target.endswith("/dev/vhost-net")
        elif "/dev/tap" in target and (match := _TAP.fullmatch(target)):
            tap.append(int(match["ifindex"]))
    if not tun and not tap:
        return None
    name = content(f"{folder}/comm").removesuffix("\n")
    group = ""
    with suppress(*_GONE):  # a kernel without control groups
        group = content(f"{folder}/cgroup")
    return Holder(
        pid=pid,
        name=name,
        user=os.stat(folder).st_uid,
        netns=_inode(f"{folder}/ns/net"),
        tun=sorted(tun),
        tap=sorted(tap),
        vhost=vhost,
        vhost_others=others,
        cgroup=group,
        guest=_guest(folder) if name == "kvm" or "qemu" in name + group else "",
    )


def _attached(folder: str, number: str) -> list[str]:
    """Return the device of an open /dev/net/tun; none before TUNSETIFF, or if it was deleted."""
    for line in content(f"{folder}/fdinfo/{number}").split("\n"):
        if line.startswith("iff:\t"):
            return [name] if (name := line.removeprefix("iff:\t")) else []
    return []


def _guest(folder: str) -> str:
    """Return the name on QEMU's command line, which doubles commas; "": none."""
    with suppress(OSError, ValueError, IndexError):
        words = content(f"{folder}/cmdline").split("\0")
        for option in words[words.index("-name") + 1].replace(",,", "\0").split(","):
            if option.startswith("guest=") or "=" not in option:
                return option.removeprefix("guest=").replace("\0", ",")
    return ""


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def ask(holders: list[Holder], names: Mapping[int, Set[str]]) -> list[Holder]:
    """Query the namespaces of devices whose name alone does not identify them.

    A device may have been moved out of its reader's namespace, and /proc only shows the name.
    Without the permission to query, the holders are returned unchanged.

    Args:
        holders: result of :func:`find`.
        names: inode of each namespace that was read -> its TUN and TAP devices.
    """
    return [
        replace(holder, device_netns=_answers(holder.pid, set(doubtful))) if doubtful else holder
        for holder, doubtful in zip(holders, unclear(holders, names), strict=True)
    ]


def unclear(holders: list[Holder], names: Mapping[int, Set[str]]) -> Iterator[list[str]]:
    """Yield, for each holder, its devices that may be in another namespace than the holder."""
    claims = Counter((holder.netns, name) for holder in holders for name in set(holder.tun))
    present = {name for here in names.values() for name in here}
    unclaimed = {name for inode in names for name in names[inode] if not claims[inode, name]}
    for holder in holders:
        own = names.get(holder.netns)
        doubtful = unclaimed if own is None else present
        yield [
            name
            for name in sorted(set(holder.tun))
            if (claims[holder.netns, name] > 1 if name in (own or ()) else name in doubtful)
        ]


def _answers(pid: int, names: set[str]) -> dict[str, int]:
    """Return the namespaces of a process's devices, as far as permitted; root may query all."""
    found: dict[str, int] = {}
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            for number in os.listdir(folder):
                with suppress(OSError):
                    if not os.readlink(f"{folder}/{number}").endswith(_TUN):
                        continue
                    for name in names.intersection(_attached(f"/proc/{pid}", number)):
                        found[name] = _device_netns(process, int(number))
        finally:
            os.close(process)
    return found


def _device_netns(process: int, number: int) -> int:
    """Return the inode of the namespace that the device of a process's file is in.

    Only the driver knows it, so the file is duplicated for two system calls.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    borrowed = libc.syscall(_PIDFD_GETFD, process, number, 0)
    if borrowed < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        space = fcntl.ioctl(borrowed, _TUNGETDEVNETNS)
    finally:
        os.close(borrowed)
    try:
        return os.fstat(space).st_ino
    finally:
        os.close(space)
