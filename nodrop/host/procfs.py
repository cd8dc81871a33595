# SPDX-License-Identifier: GPL-2.0-only
"""Processes that read virtual links, from /proc: their cgroups, and the scheduling of threads."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_ID = re.compile(r"(?:(?P<by>.*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_RUNTIMES = {"docker": "docker", "libpod": "podman"}
_VM = re.compile(r"/(?:machine-)?qemu-[0-9]+-([^/]+)\.(?:scope|libvirt-qemu)(?:/|$)")
_DROPPED = re.compile("[^0-9A-Za-z]")  # libvirt removes these from a domain's name
CAP_NET_ADMIN, CAP_SYS_MODULE = 12, 16
_KERNEL = 0x4000 | 0x200000
"""PF_USER_WORKER and PF_KTHREAD: threads that only run kernel code."""
_TICKS = os.sysconf("SC_CLK_TCK")
_SYSTEM_USERS = (range(1000), range(60578, 65534))
"""IDs that login.defs, Debian and systemd keep for services; nobody (65534) is not among them."""
_THREADS = 1024
"""Threads of a process that are read. Any user may create tens of thousands."""
POLICIES = {0: "", 1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE", 6: "DEADLINE"}
"""Names of scheduling policies; "": SCHED_OTHER."""


@dataclass(frozen=True)
class Holder:
    """A process that has /dev/net/tun, /dev/tapN or /dev/vhost-net open.

    Attributes:
        name: the kernel's name of the program (15 characters).
        netns: inode of its network namespace; 0: not readable.
        tun: names of TUN and TAP devices, one for each open queue.
        tap: ifindexes of macvtap and ipvtap devices, one for each open queue.
        unset: number of times it has /dev/net/tun open without a device.
        vhost: number of times it has /dev/vhost-net open.
        vhost_others: number of times it has other vhost devices open, such as vhost-vsock.
        workers: vhost's threads of this process: "name", "tid", and "cpu" that it last ran on.
        cgroup: content of its cgroup file.
        guest: name of the virtual machine on QEMU's command line.
        edge: devices of ``tun`` and ``tap`` whose file an epoll instance of it watches for edges
            alone (EPOLLET), one for each such file.
        device_netns: device name of ``tun`` -> inode of its namespace, if that was queried.
    """

    pid: int
    name: str
    user: int
    netns: int
    tun: list[str] = field(default_factory=list)
    tap: list[int] = field(default_factory=list)
    vhost: int = 0
    vhost_others: int = 0
    workers: list[dict[str, Any]] = field(default_factory=list)
    cgroup: str = ""
    guest: str = ""
    device_netns: dict[str, int] = field(default_factory=dict)
    edge: list[str | int] = field(default_factory=list)
    unset: int = 0

    @property
    def links(self) -> bool:
        """Whether it has a virtual link open."""
        return bool(self.tun or self.tap)


@dataclass(frozen=True)
class Cgroup:
    """The unit, container and virtual machine of a process; None: none, or not known.

    The owner of a cgroup may create any cgroup in it, so the outermost name counts, as for systemd.

    Attributes:
        unit: systemd unit; of a user's systemd, ``user@UID.service/UNIT``.
        container: ``docker:ID``, ``podman:ID``, ``kubepods:ID`` or ``lxc:NAME``.
        vm: libvirt's domain, or the name on QEMU's command line.
    """

    unit: str | None
    container: str | None
    vm: str | None

    @property
    def service(self) -> str:
        """The unit if ``systemctl`` can restart it; "" otherwise."""
        unit = self.unit or ""
        return unit if unit.endswith(".service") and not unit.startswith("user@") else ""

    @property
    def label(self) -> str:
        """The most specific name, for a table; "": nothing is known."""
        if self.vm:
            return f"vm:{self.vm}"
        runtime, _, name = (self.container or "").partition(":")
        short = name[:12] if _ID.fullmatch(name) else name
        return f"{runtime}:{short}" if name else self.unit or ""


def capable(number: int) -> bool:
    """Return whether this process has a capability: root of a container may lack it."""
    with suppress(OSError, IndexError, ValueError):
        text = Path("/proc/self/status").read_text()
        return bool(int(text.partition("\nCapEff:")[2].split()[0], 16) >> number & 1)
    return False


@lru_cache(1024)
def cgroup(text: str, guest: str = "") -> Cgroup:
    """Return the cgroup of a process.

    Args:
        text: content of its cgroup file: one line for version 2, one per hierarchy for version 1.
        guest: virtual machine's name on its command line; "": none.
    """
    lines = [line.split(":", 2) for line in text.split("\n") if line.count(":") >= 2]
    # systemd's own hierarchies first: it may not have created cgroups in the others.
    lines.sort(key=lambda line: line[1] not in ("", "name=systemd"))
    unit = container = vm = None
    for path in dict.fromkeys(line[2].removesuffix(" (deleted)") for line in lines):
        parts = [part.removeprefix("_") for part in path.split("/")]
        unit, container = unit or _unit(parts), container or _container(parts)
        vm = vm or _VM.search(_ESCAPED.sub(lambda code: chr(int(code[1], 16)), path))
    domain = vm[1] if vm else ""
    # The command line has the full name, but any program may choose such a command line.
    if _DROPPED.sub("", guest).startswith(_DROPPED.sub("", domain)):
        domain = guest
    return Cgroup(unit, container, domain or None)


def _unit(parts: list[str]) -> str | None:
    units: list[str] = []
    for part in parts:
        # "..": the cgroup is outside of this process's cgroup namespace.
        if part in ("", "..") or part.endswith(".slice"):
            continue
        if not part.endswith((".service", ".scope")):
            break
        units.append(part)
        if len(units) == 2 or not part.startswith("user@"):
            break
    return "/".join(units) or None


def _container(parts: list[str]) -> str | None:
    pods = False
    for before, part in zip(parts, parts[1:]):
        pods = pods or part.startswith("kubepods")
        if part.startswith("lxc.payload."):
            return f"lxc:{part.removeprefix('lxc.payload.')}"
        if part and before in ("lxc", "lxc.payload"):
            return f"lxc:{part}"
        if match := _ID.fullmatch(part):
            runtime = "kubepods" if pods else _RUNTIMES.get(match["by"] or before)
            return f"{runtime}:{match['id']}" if runtime else None
    return None


@dataclass(frozen=True)
class Thread:
    """A thread at one time.

    Attributes:
        pid: process that has the device open; a vhost thread may belong to another process.
        run_s: CPU time, seconds.
        wait_s: time it was runnable and did not run, seconds; None: the kernel does not report it.
        policy: scheduling policy, a key of POLICIES.
        nice: -20 to 19.
        cpu: CPU that it last ran on.
        vhost: it is a vhost thread, which reads for the process.
        state: as in stat: "S" sleeps, "T" is stopped by a signal; "": not known.
    """

    pid: int
    tid: int
    name: str
    run_s: float
    wait_s: float | None
    policy: int
    nice: int
    cpu: int = 0
    vhost: bool = False
    state: str = ""


def answers(fd: int) -> bool:
    """Return whether to ask a process for what its memory or its files contain.

    They may be FUSE's, which never answers: a read of a command line or of an epoll instance then
    does not end, not even by SIGKILL. So trust only services, and the caller. A program with the
    set-user-ID bit, such as su, has the files of the user who started it: its real user ID differs.

    Args:
        fd: its open directory /proc/PID/fd.

    Raises:
        OSError: the process ended.
    """
    # The directory's owner first: a read of status may be what frees the memory, if it ends.
    if not _trusted(os.stat("..", dir_fd=fd).st_uid):
        return False
    line = content("../status", fd).partition("\nUid:")[2].partition("\n")[0]
    users = {int(user) for user in line.split()}  # real, effective, saved, of the file system
    return len(users) == 1 and all(map(_trusted, users))


def _trusted(user: int) -> bool:
    return user == os.geteuid() or any(user in users for users in _SYSTEM_USERS)


def read_threads(pids: Iterable[int], proc: Path = Path("/proc")) -> list[Thread]:
    """Return the threads of some processes, and vhost's threads that work for them.

    Threads that exit meanwhile, and those of a process beyond _THREADS, are left out.
    """
    wanted = set(pids)
    threads = [thread for pid in sorted(wanted) for thread in _threads(proc, pid, pid)]
    # Before Linux 6.4, and if vhost is configured so, vhost's threads are separate processes.
    # Their names contain the ID of the thread that created them.
    names = {f"vhost-{thread.tid}": thread.pid for thread in threads}
    for entry in _numbers(f"{proc}") if names else ():
        with suppress(OSError):
            if name := names.get(content(f"{proc}/{entry}/comm").strip()):
                threads += (thread for thread in _threads(proc, entry, name) if thread.vhost)
    return threads


def ready_threads(threads: Iterable[Thread], proc: Path = Path("/proc")) -> Counter[int]:
    """Return the IDs of the threads that are runnable or running now, each with 1."""
    ready: Counter[int] = Counter()
    for thread in threads:
        with suppress(OSError):
            if _fields(f"{proc}/{thread.tid}/stat")[0] == "R":
                ready[thread.tid] += 1
    return ready


def _threads(proc: Path, entry: int, pid: int) -> Iterable[Thread]:
    for tid in _numbers(f"{proc}/{entry}/task")[:_THREADS]:
        with suppress(OSError, ValueError, IndexError):
            yield _thread(f"{proc}/{entry}/task/{tid}", pid, tid)


def _thread(folder: str, pid: int, tid: int) -> Thread:
    fields = _fields(f"{folder}/stat")
    run_s, wait_s = (int(fields[11]) + int(fields[12])) / _TICKS, None
    with suppress(OSError):
        times = content(f"{folder}/schedstat").split()
        run_s, wait_s = int(times[0]) / 1e9, int(times[1]) / 1e9
    name = content(f"{folder}/comm").strip()
    return Thread(
        pid=pid,
        tid=tid,
        name=name,
        run_s=run_s,
        wait_s=wait_s,
        policy=int(fields[38]),
        nice=int(fields[16]),
        cpu=int(fields[36]),
        # A program may choose such a name, but cannot set the flag.
        vhost=name.startswith("vhost-") and bool(int(fields[6]) & _KERNEL),
        state=fields[0],
    )


def _fields(path: str) -> list[str]:
    """Return the fields behind the name in a stat file; the first is the state."""
    return content(path).rpartition(")")[2].split()


def content(path: str | bytes, dir_fd: int | None = None) -> str:
    """Return the content of a file in /proc or /sys, at most 64 KiB."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        return os.read(fd, 1 << 16).decode(errors="surrogateescape")
    finally:
        os.close(fd)


def _numbers(folder: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []
