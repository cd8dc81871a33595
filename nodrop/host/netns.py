# SPDX-License-Identifier: GPL-2.0-only
"""Find network namespaces, and run functions in them in a child process.

A namespace is named as for ``ip``: by its name in /run/netns, by the PID of a process in it, or
by a path such as /proc/PID/ns/net.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nodrop.errors import NodropError
from nodrop.host.child import Child
from nodrop.shell import quote

NAMED = Path("/run/netns")

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_REC_SLAVE = 1 << 14 | 1 << 19
_OWN = "/proc/self/ns/net"


def named() -> list[str]:
    """Return the names of the named network namespaces."""
    with suppress(OSError):
        return sorted(path.name for path in NAMED.iterdir())
    return []


class Space(NamedTuple):
    """A network namespace: its name for messages, the file that represents it, and its inode."""

    name: str
    path: str
    inode: int


def find(proc: Path = Path("/proc")) -> list[Space]:
    """Return all visible namespaces, each once; named ones first."""
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

    It runs in a child process whose /sys shows the namespace's devices. For the caller's own
    namespace it is called directly. The child's other mounts and files are the caller's.

    Args:
        where: a name, a PID or a path; None: the caller's own.
        function: its result must survive JSON.
        seconds: timeout of the child process; None: none.
        sysfs: False: the function calls :func:`own_sys` if it needs /sys. Mounting /sys copies
            all mounts, and each named namespace is one.

    Raises:
        NodropError: the namespace does not exist or cannot be entered; or raised by the function.
        OSError: raised by the function, with its errno and file name.
    """
    if where is None:
        own_sys()
        return function()
    fd = _open(where)
    try:
        if _same(fd):
            own_sys()
            return function()
        with Child(lambda: _call(fd, where, function, sysfs), seconds) as child:
            return child.result(f"Reading the network namespace {where} did not finish.")
    finally:
        os.close(fd)


def own() -> int:
    """Return the inode of this process's network namespace.

    Raises:
        NodropError: /proc is not mounted.
    """
    try:
        return os.stat(_OWN).st_ino
    except OSError as error:
        raise NodropError("/proc is not mounted.", "mount -t proc proc /proc") from error


def own_sys() -> bool:
    """Make /sys show this process's network namespace, if it may show another one.

    ``nsenter --net`` and ``unshare --net`` do not change /sys, which then shows the devices of
    another namespace.

    Returns:
        Whether /sys is known to show this process's namespace.
    """
    with suppress(OSError):
        _show_own_sys()
        return True
    return False


def _show_own_sys() -> None:
    """Make /sys show this process's network namespace.

    Raises:
        OSError: /sys cannot be mounted.
    """
    pid, inode, first = os.getpid(), os.stat(_OWN).st_ino, 0
    with suppress(OSError):
        first = os.stat("/proc/1/ns/net").st_ino
    if _sys_shows.get(pid) != inode:
        # /sys was mounted in the namespace of process 1, or before this process entered another.
        if pid in _sys_shows or inode != first:
            _mount_sys(ctypes.CDLL(None, use_errno=True))
        _sys_shows[pid] = inode


_sys_shows: dict[int, int] = {}
"""PID -> the namespace that its /sys shows, once known; 0: another one."""


def prefix(where: str | int | Path | None) -> str:
    """Return the command prefix that runs a command in a namespace; "" for None."""
    if where is None:
        return ""
    path = path_of(where)
    if path.parent == NAMED:
        return f"ip netns exec {quote(str(where))} "
    return f"nsenter --net={quote(str(path))} "


def path_of(where: str | int | Path) -> Path:
    """Return the file that represents a namespace; it need not exist."""
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
        # The path may be a FIFO, which must not block.
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


def _call(fd: int, where: str | int | Path, function: Callable[[], Any], sysfs: bool) -> Any:
    _enter(fd, where, sysfs)
    return function()


def _enter(fd: int, where: str | int | Path, sysfs: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise _sentence(where, ctypes.get_errno())

    check(libc.setns(fd, _CLONE_NEWNET))
    _sys_shows[os.getpid()] = 0
    if sysfs:
        try:
            _show_own_sys()
        except OSError as error:
            raise _sentence(where, error.errno or 0) from error


def _mount_sys(libc: ctypes.CDLL) -> None:
    """Mount a sysfs, which shows the caller's network namespace, in a private mount namespace."""

    def check(result: int) -> None:
        # EBUSY: /sys shows this namespace already.
        if result != 0 and ctypes.get_errno() != errno.EBUSY:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "/sys")

    check(libc.unshare(_CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_SLAVE), None))
    flags = ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC)
    check(libc.mount(b"nodrop", b"/sys", b"sysfs", flags, None))


def _sentence(where: str | int | Path, number: int) -> NodropError:
    """Return the error for a namespace that cannot be entered."""
    if number in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL):
        return NodropError(
            f"There is no network namespace {where}.",
            f"Named namespaces: {', '.join(named()) or 'none'}. A PID or a path works, too.",
        )
    if number in (errno.EACCES, errno.EPERM):
        return NodropError(
            f"Only root can enter the network namespace {where} (CAP_SYS_ADMIN).",
            "Run this as root.",
        )
    return NodropError(f"The network namespace {where} cannot be entered: {os.strerror(number)}.")
