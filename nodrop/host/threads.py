# SPDX-License-Identifier: GPL-2.0-only
"""Scheduling of the threads that read virtual links, from /proc."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KERNEL = 0x4000 | 0x200000
"""PF_USER_WORKER and PF_KTHREAD: threads that only run kernel code."""
_TICKS = os.sysconf("SC_CLK_TCK")
POLICIES = {0: "", 1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE", 6: "DEADLINE"}
"""Names of scheduling policies; "": SCHED_OTHER."""


@dataclass(frozen=True)
class Thread:
    """A thread at one time.

    Attributes:
        pid: process that has the device open; a vhost thread may belong to another process.
        tid: thread ID.
        name: the kernel's name of the thread.
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


def read(pids: Iterable[int], proc: Path = Path("/proc")) -> list[Thread]:
    """Return the threads of some processes, and vhost's threads that work for them.

    Threads that exit meanwhile are left out.
    """
    wanted = set(pids)
    found = [thread for pid in sorted(wanted) for thread in _threads(proc, pid, pid)]
    # Before Linux 6.4, and if vhost is configured so, vhost's threads are separate processes.
    # Their names contain the ID of the thread that created them.
    names = {f"vhost-{thread.tid}": thread.pid for thread in found}
    for entry in _numbers(f"{proc}") if names else ():
        with suppress(OSError):
            if name := names.get(content(f"{proc}/{entry}/comm").strip()):
                found += (one for one in _threads(proc, entry, name) if one.vhost)
    return found


def states(threads: Iterable[Thread], proc: Path = Path("/proc")) -> Counter[int]:
    """Return the IDs of the threads that are runnable or running now, each once."""
    ready: Counter[int] = Counter()
    for thread in threads:
        with suppress(OSError):
            if _fields(f"{proc}/{thread.tid}/stat")[0] == "R":
                ready[thread.tid] += 1
    return ready


def _threads(proc: Path, entry: int, pid: int) -> Iterable[Thread]:
    for tid in _numbers(f"{proc}/{entry}/task"):
        with suppress(OSError, ValueError, IndexError):
            yield _thread(f"{proc}/{entry}/task/{tid}", pid, tid)


def _thread(folder: str, pid: int, tid: int) -> Thread:
    fields = _fields(f"{folder}/stat")
    run_s, wait_s = (int(fields[11]) + int(fields[12])) / _TICKS, None
    with suppress(OSError):
        words = content(f"{folder}/schedstat").split()
        run_s, wait_s = int(words[0]) / 1e9, int(words[1]) / 1e9
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
