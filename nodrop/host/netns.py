# SPDX-License-Identifier: GPL-2.0-only
"""Find network namespaces, and run functions in them in a child process.

A namespace is named as for ``ip``: by its name in /run/netns, by the PID of a process in it, or
by a path such as /proc/PID/ns/net.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from nodrop import proc
from nodrop.errors import NodropError, refused
from nodrop.proc import quote

NAMED = Path("/run/netns")
_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_REC_SLAVE = 1 << 14 | 1 << 19
_OWN = "/proc/self/ns/net"
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A child process that calls a function; a context manager, which ends it.

    Args:
        function: its result must survive JSON.
        seconds: timeout; None: none.

    Raises:
        OSError: no process can be created.
    """

    def __init__(self, function: Callable[[], Any], seconds: float | None = None) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        reader, writer = os.pipe()
        # A signal in between would leave the pipe open, or run the caller's code in the child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTING)
        try:
            self._pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        if self._pid == 0:
            os.close(reader)
            _run(function, seconds, writer)
        os.close(writer)
        self._pipe = os.fdopen(reader, encoding="utf-8")
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def result(self, unfinished: str) -> Any:
        """Wait for the function, and return its result or raise its error.

        Args:
            unfinished: message for a child that ended before the function did.

        Raises:
            NodropError: raised by the function, or it did not finish.
            OSError: raised by the function, with its errno and file name.
            RuntimeError: any other error of the function, with its traceback as the cause.
        """
        try:
            answer = json.loads(self._pipe.read())
        except ValueError as error:
            raise NodropError(unfinished) from error
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["file"])
        if "error" in answer:
            raise NodropError(*answer["error"])
        if "bug" in answer:
            raise RuntimeError(answer["bug"]) from RuntimeError(answer["trace"])
        return answer["result"]


def _run(function: Callable[[], Any], seconds: float | None, writer: int) -> None:
    """Write the function's result or error to the pipe, and exit."""
    status = 1
    try:
        for number in _INTERRUPTING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTING)
        if seconds is not None:
            # Programs that it runs end first.
            proc.deadline = time.monotonic() + (proc.at_most(seconds) or 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds + 1)
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(_answer(function)))
        status = 0
    finally:
        os._exit(status)


def _answer(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": function()}
    except NodropError as error:
        return {"error": [error.message, error.hint, error.status]}
    except OSError as error:
        return {"errno": error.errno or errno.EIO, "file": error.filename}
    except Exception as error:
        return {"bug": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}


def named() -> list[str]:
    with suppress(OSError):
        return sorted(path.name for path in NAMED.iterdir())
    return []


class Namespace(NamedTuple):
    """A network namespace: its name for messages, the file that represents it, and its inode."""

    name: str
    path: str
    inode: int


def find(proc: Path = Path("/proc")) -> list[Namespace]:
    """Return all visible namespaces, each once; named ones first."""
    paths = [(name, f"{NAMED}/{name}") for name in named()]
    with suppress(OSError):
        pids = sorted(filter(str.isdigit, os.listdir(proc)), key=int)
        paths += [(pid, f"{proc}/{pid}/ns/net") for pid in pids]
    namespaces: dict[int, Namespace] = {}
    for name, path in paths:
        with suppress(OSError):
            inode = os.stat(path).st_ino
            namespaces.setdefault(inode, Namespace(name, path, inode))
    return list(namespaces.values())


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
    fd, target = _open(where), where

    def inside() -> Any:
        _enter(fd, target, sysfs)
        return function()

    try:
        if _same(fd):
            own_sys()
            return function()
        with Child(inside, seconds) as child:
            return child.result(f"Reading the network namespace {where} did not finish.")
    finally:
        os.close(fd)


def own() -> int:
    """Return the inode of this process's network namespace; NodropError if /proc is not mounted."""
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
    """Make /sys show this process's network namespace; OSError if /sys cannot be mounted."""
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
        return refused(f"enter the network namespace {where}", number, "CAP_SYS_ADMIN")
    return NodropError(f"The network namespace {where} cannot be entered: {os.strerror(number)}.")
