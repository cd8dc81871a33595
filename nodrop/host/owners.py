# SPDX-License-Identifier: GPL-2.0-only
"""Find the processes that have the drivers' device nodes open, from /proc."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from nodrop.host import procfs
from nodrop.host.procfs import Holder, content

# For a process with another root directory, the paths begin with that directory.
_TUN = "/dev/net/tun"
_VHOST = "/dev/vhost-"
_TAP = re.compile(r".*/dev/tap(?P<ifindex>[0-9]+)")
_TUNGETDEVNETNS = 0x54E3
_PIDFD_GETFD = 438
_EPOLL = "anon_inode:[eventpoll]"
_WATCHED = re.compile(r"^tfd: *(?P<file>\d+) events: *(?P<events>[0-9a-f]+) ", re.MULTILINE)
_EPOLLIN, _EPOLLET = 1, 1 << 31
OWNERS_S = 10.0
"""Usual time limit for inspecting all processes, seconds: one may have millions of files open."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE = (FileNotFoundError, ProcessLookupError)


def find(proc: Path = Path("/proc"), limit_s: float | None = None) -> tuple[list[Holder], int]:
    """Return those processes, and the number of processes that could not be inspected.

    Processes that exit meanwhile are left out.

    Args:
        limit_s: time limit, seconds; None: OWNERS_S. Processes that were not inspected by then
            count as not inspected.
    """
    end = time.monotonic() + (OWNERS_S if limit_s is None else limit_s)
    holders = []
    hidden = 0
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return [], 1
    for index, pid in enumerate(pids):
        if time.monotonic() > end:
            hidden += len(pids) - index
            break
        try:
            fd = os.open(f"{proc}/{pid}/fd", _DIRECTORY)
            try:
                holder = _holder(fd, pid, end)
            finally:
                os.close(fd)
        except _GONE:
            continue
        except OSError:
            hidden += 1
        else:
            if holder:
                holders.append(holder)
    vhost = {holder.pid: holder for holder in holders if holder.vhost and holder.links}
    for thread in procfs.read_threads(vhost, proc):
        if thread.vhost:
            worker = {"name": thread.name, "tid": thread.tid, "cpu": thread.cpu}
            vhost[thread.pid].workers.append(worker)
    return holders, hidden


def _holder(fd: int, pid: int, end: float) -> Holder | None:
    """Return a process; None: it has none of the device nodes open.

    Raises:
        OSError: it ended, or could not be inspected by a time (monotonic), or is hidden.
    """
    # In /proc, a path relative to an open directory is faster than an absolute one.
    files: dict[str, str | int] = {}
    epolls, unset, vhost, others = [], 0, 0, 0
    for number in os.listdir(fd):
        if time.monotonic() > end:
            raise TimeoutError
        try:
            target = os.readlink(number, dir_fd=fd)
            if target == _EPOLL:
                epolls.append(number)
            if "/dev/" not in target:
                continue
            if target.endswith(_TUN):
                names = _attached(number, fd)
                files.update((number, name) for name in names)
                unset += not names
        except _GONE:
            continue
        if _VHOST in target:
            vhost += target.endswith("/dev/vhost-net")
            others += not target.endswith("/dev/vhost-net")
        elif "/dev/tap" in target and (match := _TAP.fullmatch(target)):
            files[number] = int(match["ifindex"])
    if not (files or unset or vhost):
        return None
    name = content("../comm", fd).removesuffix("\n")
    group = ""
    with suppress(*_GONE):  # a kernel without control groups
        group = content("../cgroup", fd)
    known = bool(files) and procfs.answers(fd)
    return Holder(
        pid=pid,
        name=name,
        user=os.stat("..", dir_fd=fd).st_uid,  # fd/ is root's if the process is not dumpable
        netns=_netns(fd),
        tun=sorted(name for name in files.values() if isinstance(name, str)),
        tap=sorted(index for index in files.values() if isinstance(index, int)),
        vhost=vhost,
        vhost_others=others,
        unset=unset,
        cgroup=group,
        guest=_guest(fd) if known and (name == "kvm" or "qemu" in name + group) else "",
        edge=_edge(epolls, files, fd) if known else [],
    )


def _attached(number: str, fd: int) -> list[str]:
    """Return the device of an open /dev/net/tun; none before TUNSETIFF, or if it was deleted."""
    name = content(f"../fdinfo/{number}", fd).partition("\niff:\t")[2].partition("\n")[0]
    return [name] if name else []


def _edge(epolls: list[str], files: Mapping[str, str | int], fd: int) -> list[str | int]:
    """Return the devices of the files that are watched for edges alone.

    An epoll instance shows a file by the number that it had when it was added.
    """
    ways: dict[str, set[bool]] = {}
    for number in epolls:
        with suppress(*_GONE):
            for match in _WATCHED.finditer(_read_all(f"../fdinfo/{number}", fd)):
                events = int(match["events"], 16)
                if events & _EPOLLIN:
                    ways.setdefault(match["file"], set()).add(bool(events & _EPOLLET))
    devices = [device for number, device in files.items() if ways.get(number) == {True}]
    return sorted(devices, key=str)


def _read_all(path: str, dir_fd: int) -> str:
    """Return a file in /proc: an epoll instance may watch thousands of files."""
    with open(path, opener=lambda name, flags: os.open(name, flags, dir_fd=dir_fd)) as file:
        return file.read()


def _guest(fd: int) -> str:
    """Return the name on QEMU's command line, which doubles commas; "": none."""
    with suppress(OSError, ValueError, IndexError):
        argv = content("../cmdline", fd).split("\0")
        for option in argv[argv.index("-name") + 1].replace(",,", "\0").split(","):
            if option.startswith("guest=") or "=" not in option:
                return option.removeprefix("guest=").replace("\0", ",")
    return ""


def _netns(fd: int) -> int:
    """Return the inode of a process's network namespace; 0: not permitted."""
    with suppress(OSError):
        return int(os.readlink("../ns/net", dir_fd=fd).strip("net:[]"))
    return 0


def ask(holders: list[Holder], names: Mapping[int, Set[str]]) -> list[Holder]:
    """Query the namespaces of devices whose name alone does not identify them.

    A device may have been moved out of its reader's namespace, and /proc only shows the name.
    Without the permission to query, and after OWNERS_S, holders are returned unchanged. So are
    those of other users: the file may be replaced by one of FUSE, whose close() never returns.

    Args:
        holders: result of :func:`find`.
        names: inode of each namespace that was read -> its TUN and TAP devices.
    """
    end = time.monotonic() + OWNERS_S
    return [
        replace(holder, device_netns=_answers(holder.pid, set(doubtful)))
        if doubtful and time.monotonic() < end
        else holder
        for holder, doubtful in zip(holders, unclear(holders, names))
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
    spaces: dict[str, int] = {}
    with suppress(OSError), ExitStack() as stack:
        process = os.pidfd_open(pid)
        stack.callback(os.close, process)
        fd = os.open(f"/proc/{pid}/fd", _DIRECTORY)
        stack.callback(os.close, fd)
        for number in os.listdir(fd) if procfs.answers(fd) else ():
            with suppress(OSError):
                if not os.readlink(number, dir_fd=fd).endswith(_TUN):
                    continue
                for name in names.intersection(_attached(number, fd)):
                    spaces[name] = _device_netns(process, int(number))
    return spaces


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
