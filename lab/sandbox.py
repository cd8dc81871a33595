# SPDX-License-Identifier: GPL-2.0-only
"""Starts a guest's kernel where it can write only to its results directory.

:mod:`lab.uml` runs this as a program, with the standard library only, as the first process of new
mount, process, network and IPC namespaces. It makes every mount read-only except the results
directory and one tmpfs for the guest's memory, then starts the kernel. When this process ends,
the host's kernel kills all others in its process namespace and drops its mounts.

Standard input is one JSON object: ``linux`` (argv), ``preload``, ``plan`` (the plan's text),
``out``, ``work`` (the tmpfs, or an existing directory), ``isolate``, ``urgent`` and ``fds``.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

MS_BIND = 1 << 12
MS_REC = 1 << 14
MS_PRIVATE = 1 << 18
MS_NOSUID_NODEV = 2 | 4
MOUNT_ATTR_RDONLY = 1
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
SYS_MOUNT_SETATTR = 442

URGENT_NICE = -15
"""About 28 times the share of a program at nice 0."""

libc = ctypes.CDLL(None, use_errno=True)


class MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Call mount(2)."""
    result = libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(result, f"mount on {target}")


def set_readonly(target: str, readonly: bool, *, recursive: bool) -> None:
    """Make a mount read-only or writable by mount_setattr(2) (Linux 5.12)."""
    attr = MountAttr(
        attr_set=MOUNT_ATTR_RDONLY if readonly else 0,
        attr_clr=0 if readonly else MOUNT_ATTR_RDONLY,
    )
    flags = AT_RECURSIVE if recursive else 0
    result = libc.syscall(
        SYS_MOUNT_SETATTR,
        AT_FDCWD,
        target.encode(),
        ctypes.c_uint(flags),
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )
    _check(result, f"mount_setattr on {target}")


def be_urgent() -> None:
    """Ask the scheduler to prefer this session; no effect without the right to do so.

    Where sessions are scheduled as groups (``sched_autogroup_enabled``), a process's niceness
    counts within its own session only: without the group's niceness, a guest would get half of a
    CPU while a compiler runs at nice 19.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, URGENT_NICE)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(URGENT_NICE), encoding="ascii")


def open_many() -> None:
    """Raise the limit of open files to this user's maximum.

    UML's hostfs keeps each file open that the guest has looked up.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def isolate(out: str, work: str) -> None:
    """Leave only ``out`` and a new tmpfs on ``work`` writable."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount(out, out, flags=MS_BIND)
    set_readonly("/", True, recursive=True)
    set_readonly(out, False, recursive=False)
    mount("lab", work, "tmpfs", MS_NOSUID_NODEV, "mode=700,size=100%")


def main() -> int:
    # Ctrl-C at the terminal is for the host side, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.load(sys.stdin)
    work = request["work"]
    if request["urgent"]:
        be_urgent()
    if request["isolate"]:
        isolate(request["out"], work)
    Path(work, "plan").write_text(request["plan"], encoding="utf-8")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    open_many()
    env = {"PATH": os.environ.get("PATH", ""), "TMPDIR": work, "HOME": work}
    if request["preload"]:
        env["LD_PRELOAD"] = request["preload"]
    if not request["isolate"]:
        # The caller can kill only the process that it started, so the kernel has to be that one.
        os.chdir(work)
        os.execve(request["linux"][0], request["linux"], env)
    kernel = subprocess.Popen(
        request["linux"], stdin=subprocess.DEVNULL, env=env, pass_fds=request["fds"], cwd=work
    )
    for fd in request["fds"]:
        os.close(fd)
    return kernel.wait()


if __name__ == "__main__":
    sys.exit(main() & 0xFF)
