# SPDX-License-Identifier: GPL-2.0-only
"""Finds other network namespaces, and looks into them from a child process.

A namespace is named as for ``ip``: by its name in /run/netns, by the pid of a process that
lives in it, or by a path such as /proc/PID/ns/net.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nodrop.errors import NodropError
from nodrop.shell import quote

NAMED = Path("/run/netns")

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_REC_SLAVE = 1 << 14 | 1 << 19
_OWN = "/proc/self/ns/net"


def named() -> list[str]:
    """Return the names of the named network namespaces; empty when there are none."""
    with suppress(OSError):
        return sorted(path.name for path in NAMED.iterdir())
    return []


class Space(NamedTuple):
    """A network namespace: what people call it, the file that stands for it, and its inode."""

    name: str
    path: str
    inode: int


def find(proc: Path = Path("/proc")) -> list[Space]:
    """Return all that can be seen, each once; those with a name first."""
    paths = [(name, f"{NAMED}/{name}") for name in named()]
    with suppress(OSError):
        pids = sorted(filter(str.isdigit, os.listdir(proc)), key=int)
        paths += [(pid, f"{proc}/{pid}/ns/net") for pid in pids]
    found: dict[int, Space] = {}
    for name, path in paths:
        with suppress(OSError):
            inode = os.stat(path).st_ino
            found.setdefault(inode, Space(name, path, inode))
    return list(found.values())


def run_inside(
    where: str | int | Path | None,
    function: Callable[[], Any],
    seconds: float | None = None,
    *,
    sysfs: bool = True,
) -> Any:
    """Call a function in a network namespace and return its result.

    It runs in a child process whose /sys shows the namespace's devices; in the caller's own
    namespace it is simply called. The child's other mounts and files are the caller's.

    Args:
        where: a name, a pid or a path; None: the caller's own.
        function: what it returns must survive JSON.
        seconds: after which a child process is stopped; None: it may take any time.
        sysfs: False: the function calls :func:`own_sys` where it needs /sys. That copies all
            mounts, of which a machine with many named namespaces has many.

    Raises:
        NodropError: no such namespace, it is gone, no right to enter it; or what the function
            raised.
        OSError: what the function raised, with its errno and file name.
    """
    if where is None:
        own_sys()
        return function()
    fd = _open(where)
    try:
        if _same(fd):
            own_sys()
            return function()
        return _in_child(lambda: _call(fd, where, function, sysfs), where, seconds)
    finally:
        os.close(fd)


def own() -> int:
    """Return the inode of the namespace that this process is in.

    Raises:
        NodropError: there is no /proc to see that.
    """
    try:
        return os.stat(_OWN).st_ino
    except OSError as error:
        raise NodropError("There is no /proc here, so nothing can be seen.") from error


def own_sys() -> bool:
    """Give this process a /sys of its own namespace, where the one it has may be another's.

    ``nsenter --net`` and ``unshare --net`` leave /sys as it was, and then its devices are those
    of another namespace.

    Returns:
        Whether /sys is known to be that of the process' namespace.
    """
    with suppress(OSError):
        _see_sys()
        return True
    return False


def _see_sys() -> None:
    """Have /sys show the devices of this process's namespace, or raise OSError."""
    pid, inode = os.getpid(), os.stat(_OWN).st_ino
    if _looked_at.get(pid) != inode:
        # The first process is where /sys was mounted; one that entered a namespace was elsewhere.
        if pid in _looked_at or inode != os.stat("/proc/1/ns/net").st_ino:
            _mount_sys(ctypes.CDLL(None, use_errno=True))
        _looked_at[pid] = inode


_looked_at: dict[int, int] = {}
"""Process -> the namespace that its /sys shows, once that is known; 0: another one."""


def prefix(where: str | int | Path | None) -> str:
    """Return the words that run a command in a namespace, with a space; empty for None."""
    if where is None:
        return ""
    path = path_of(where)
    if path.parent == NAMED:
        return f"ip netns exec {quote(str(where))} "
    return f"nsenter --net={quote(str(path))} "


def path_of(where: str | int | Path) -> Path:
    """Return the file that stands for a namespace; it need not exist."""
    text = str(where)
    if isinstance(where, int):
        return Path(f"/proc/{where}/ns/net")
    if "/" in text:
        return Path(text)
    if text.isdigit() and not (NAMED / text).exists():
        return Path(f"/proc/{text}/ns/net")
    return NAMED / text


def _open(where: str | int | Path) -> int:
    path = path_of(where)
    try:
        # A path may name anything: a FIFO must not block.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.ENOENT
        raise _sentence(where, number or 0) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _sentence(where, errno.EINVAL)
    return fd


def _same(fd: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(fd), os.stat(_OWN))
    return False


def _enter(fd: int, where: str | int | Path, sysfs: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise _sentence(where, ctypes.get_errno())

    check(libc.setns(fd, _CLONE_NEWNET))
    _looked_at[os.getpid()] = 0
    if sysfs:
        try:
            _see_sys()
        except OSError as error:
            raise _sentence(where, error.errno or 0) from error


def _mount_sys(libc: ctypes.CDLL) -> None:
    """Mount a sysfs, which shows the namespace of who mounts it, where nobody else sees it."""

    def check(result: int) -> None:
        # EBUSY: it is what /sys shows already.
        if result != 0 and ctypes.get_errno() != errno.EBUSY:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "/sys")

    check(libc.unshare(_CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_SLAVE), None))
    flags = ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC)
    check(libc.mount(b"nodrop", b"/sys", b"sysfs", flags, None))


def _in_child(
    call: Callable[[], dict[str, Any]], where: str | int | Path, seconds: float | None
) -> Any:
    """Fork, let the child tell by a pipe what came out of the call, and return or raise it."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds or 0)
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                pipe.write(json.dumps(call()))
            status = 0
        finally:
            os._exit(status)
    try:
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            text = pipe.read()
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.waitpid(pid, 0)
    try:
        told = json.loads(text)
    except ValueError as error:
        raise NodropError(f"The look into the network namespace {where} ended early.") from error
    if "errno" in told:
        raise OSError(told["errno"], os.strerror(told["errno"]), told["file"])
    if "error" in told:
        raise NodropError(*told["error"])
    return told["result"]


def _call(
    fd: int, where: str | int | Path, function: Callable[[], Any], sysfs: bool
) -> dict[str, Any]:
    try:
        _enter(fd, where, sysfs)
        return {"result": function()}
    except NodropError as error:
        return {"error": [error.message, error.hint, error.status]}
    except OSError as error:
        return {"errno": error.errno or errno.EIO, "file": error.filename}


def _sentence(where: str | int | Path, number: int) -> NodropError:
    """Return the error that tells a user why a namespace cannot be entered."""
    if number in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ENAMETOOLONG):
        return NodropError(
            f"There is no network namespace {where}.",
            f"Known: {', '.join(named()) or 'none'}. A pid or a path is taken as well.",
        )
    if number in (errno.EACCES, errno.EPERM):
        return NodropError(
            f"Only root can enter the network namespace {where} (CAP_SYS_ADMIN).",
            "Run this as root.",
        )
    return NodropError(f"The network namespace {where} cannot be entered: {os.strerror(number)}.")
