# SPDX-License-Identifier: GPL-2.0-only
"""Which processes have virtual links open, from /proc."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nodrop.host.raw import Holder

# As a process with another root sees them, their paths begin with that root's.
_TUN = "/dev/net/tun"
_VHOST = "/dev/vhost-net"
_TAP = re.compile(r".*/dev/tap(?P<ifindex>\d+)")
_TUNGETDEVNETNS = 0x54E3
_PIDFD_GETFD = 438


def find(proc: Path = Path("/proc")) -> tuple[list[Holder], int]:
    """Return those processes, and how many others could not be looked into.

    Processes that end meanwhile are left out.
    """
    holders = []
    hidden = 0
    for pid in _processes(proc):
        try:
            holder = _holder(proc, pid)
        except PermissionError:
            hidden += 1
        except OSError:
            continue
        else:
            if holder:
                holders.append(holder)
    return holders, hidden


def _processes(proc: Path) -> list[str]:
    try:
        return sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)
    except OSError:
        return []


def _holder(proc: Path, pid: str) -> Holder | None:
    folder = f"{proc}/{pid}/fd"
    tun, tap, vhost = [], [], 0
    for number in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{number}")
        except OSError:
            continue
        if target.endswith(_TUN):
            tun.extend(_attached(proc, pid, number))
        elif target.endswith(_VHOST):
            vhost += 1
        elif match := _TAP.fullmatch(target):
            tap.append(int(match["ifindex"]))
    if not tun and not tap:
        return None
    return Holder(
        pid=int(pid),
        name=_read(f"{proc}/{pid}/comm", "replace").strip(),
        user=os.stat(f"{proc}/{pid}").st_uid,
        netns=_inode(f"{proc}/{pid}/ns/net"),
        tun=sorted(tun),
        tap=sorted(tap),
        vhost=vhost,
    )


def _attached(proc: Path, pid: str, number: str) -> list[str]:
    """The device of an open /dev/net/tun; none before TUNSETIFF, or when it is gone."""
    with suppress(OSError):
        for line in _read(f"{proc}/{pid}/fdinfo/{number}").splitlines():
            key, _, value = line.partition(":")
            if key == "iff":
                return [value.strip()] if value.strip() else []
    return []


def _read(path: str, errors: str = "surrogateescape") -> str:
    with open(path, encoding="utf-8", errors=errors) as file:
        return file.read()


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def ask(holders: list[Holder], names: Mapping[int, Set[str]]) -> list[Holder]:
    """Ask which namespace a device is in where the name alone does not say.

    A device may have been moved away from the namespace of its reader, and /proc shows the name
    only. Whoever may not ask gets the holders as they are.

    Args:
        holders: as :func:`find` returns them.
        names: inode of each namespace that was read -> its TUN and TAP devices.
    """
    return [
        replace(holder, device_netns=_answers(holder.pid, doubtful)) if doubtful else holder
        for holder, doubtful in zip(holders, unclear(holders, names), strict=True)
    ]


def unclear(holders: list[Holder], names: Mapping[int, Set[str]]) -> Iterator[list[str]]:
    """Yield, for each holder, its devices that may be in another namespace than it is in itself.

    The cost grows with the number of devices, not with its square.
    """
    claims = Counter((holder.netns, name) for holder in holders for name in set(holder.tun))
    present = {name for here in names.values() for name in here}
    unclaimed = {name for inode in names for name in names[inode] if not claims[inode, name]}
    for holder in holders:
        own = names.get(holder.netns)
        yield [
            name
            for name in sorted(set(holder.tun))
            if (
                claims[holder.netns, name] > 1
                if own is not None and name in own
                else name in (unclaimed if own is None else present)
            )
        ]


def _answers(pid: int, names: Iterable[str]) -> dict[str, int]:
    """Return the namespaces of a process's devices, as far as they may be asked for: as root."""
    wanted = set(names)
    found: dict[str, int] = {}
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            for number in os.listdir(folder):
                with suppress(OSError):
                    if not os.readlink(f"{folder}/{number}").endswith(_TUN):
                        continue
                    for name in wanted.intersection(_attached(Path("/proc"), str(pid), number)):
                        found[name] = _device_netns(process, int(number))
                        wanted.remove(name)
        finally:
            os.close(process)
    return found


def _device_netns(process: int, number: int) -> int:
    """Return the inode of the namespace that the device of a process's file is in.

    The file is borrowed for two system calls, since only the driver knows.
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
