# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's tracing files (tracefs): this process's instance, and cleanup after killed runs."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError, UnsupportedError, refused

EVENT = "skb/kfree_skb"
_MOUNT_POINT = "sys/kernel/tracing"
_LOCKDOWN = "sys/kernel/security/lockdown"
_LEFT = re.compile(r"nodrop_why_(?P<pid>\d+)_(?P<namespace>\d+)")
_BUSY_S = 2.0
_READ = 65536
"""Bytes of one read, which returns about sixty events."""


class Tracefs:
    """The tracing files of the running kernel; ``root``: parent of ``sys`` and ``proc``."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.path = root / _MOUNT_POINT

    def open(self) -> None:
        """Check that the files can be used, and clean up after killed runs.

        Raises:
            NodropError: permission is missing.
            UnsupportedError: the kernel has no such files or event, or is locked down.
        """
        try:
            if not self.path.is_dir():
                raise UnsupportedError("This kernel has no tracing files (CONFIG_TRACING).")
            try:
                (self.path / "events").stat()
            except FileNotFoundError:
                self._mount()
            if not (self.path / "events" / EVENT / "format").exists():
                raise UnsupportedError(
                    "This kernel does not report drops: it has no tracepoint skb:kfree_skb."
                )
            self.sweep()
        except OSError as error:
            raise self.refused(error) from error

    def _mount(self) -> None:
        """Mount the files, as perf does; they stay mounted."""
        if os.geteuid() != 0:
            raise refused("mount the kernel's tracing files", errno.EPERM)
        done = proc.ask("mount", "-t", "tracefs", "tracefs", str(self.path))
        if done.returncode != 0:
            raise UnsupportedError(
                "The kernel's tracing files cannot be mounted.", done.stderr.strip()
            )

    def refused(self, error: OSError) -> NodropError:
        """Return the error for a failed access to the tracing files."""
        with suppress(OSError):
            if "[confidentiality]" in (self.root / _LOCKDOWN).read_text():
                return UnsupportedError(
                    "The kernel is locked down (confidentiality), which forbids tracing.",
                    "cat /sys/kernel/security/lockdown",
                )
        if error.errno in (errno.EPERM, errno.EACCES):
            need = "CAP_SYS_ADMIN in the initial user namespace"
            return refused("use the kernel's tracing files", error.errno, need)
        if error.errno in (errno.ENODEV, errno.ENOSYS):
            return UnsupportedError("This kernel has no tracing files (CONFIG_TRACING).")
        where = f" ({error.filename})" if error.filename else ""
        return NodropError(f"The kernel's tracing files cannot be used: {error.strerror}{where}.")

    def sweep(self) -> None:
        """Remove the instances of killed runs of this PID namespace."""
        with suppress(FileNotFoundError):
            for path in sorted((self.path / "instances").iterdir()):
                match = _LEFT.fullmatch(path.name)
                if (
                    match
                    and int(match["namespace"]) == self.pid_namespace()
                    and not (self.root / "proc" / match["pid"]).exists()
                ):
                    with suppress(NodropError):
                        _remove(path)

    def functions(self, addresses: set[int]) -> Mapping[int, tuple[str, str]]:
        """Return address -> function with offset, and module, from /proc/kallsyms."""
        with suppress(OSError), (self.root / "proc/kallsyms").open(encoding="utf-8") as lines:
            return resolve(lines, addresses)
        return {}

    def pid_namespace(self) -> int:
        return (self.root / "proc/self/ns/pid").stat().st_ino


class Instance:
    """This process's instance of the tracing files, and its pipe of events.

    Every method raises NodropError if the kernel refuses.
    """

    def __init__(self, files: Tracefs) -> None:
        self._files = files
        name = f"nodrop_why_{os.getpid()}_{files.pid_namespace()}"
        self.path = files.path / "instances" / name
        self.pipe = -1
        self._rest = ""

    def create(self, settings: Mapping[str, str]) -> None:
        """Create the instance, and write some of its files: path -> content."""
        with self.refusals():
            self.path.mkdir()
            for name, text in settings.items():
                (self.path / name).write_text(text)
            self.pipe = os.open(self.path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)

    def write(self, name: str, text: str) -> None:
        with self.refusals():
            (self.path / name).write_text(text)

    def clear(self) -> None:
        # Opening it for truncation empties the buffers of our instance.
        self.write("trace", "")
        self._rest = ""

    def lines(self, reads: int = 1) -> Iterator[str]:
        """Yield the lines of the events that there are now, of at most ``reads`` reads."""
        for _ in range(reads):
            with self.refusals():
                try:
                    data = os.read(self.pipe, _READ)
                except BlockingIOError:
                    return
            if not data:
                return
            *lines, self._rest = (self._rest + data.decode(errors="surrogateescape")).split("\n")
            yield from lines

    def close(self) -> None:
        """Remove the instance; may be called more than once."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
        _remove(self.path)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Raise the error for a failed access of the body."""
        try:
            yield
        except OSError as error:
            raise self._files.refused(error) from error


def _remove(instance: Path) -> None:
    """Remove an instance, if it exists; NodropError if it cannot be removed."""
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            instance.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            # EBUSY: another process has one of its files open.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise NodropError(
                    f"{instance} cannot be removed: {error.strerror}.",
                    "The next 'nodrop drops' tries again.",
                ) from error
        time.sleep(0.05)


def resolve(lines: Iterable[str], addresses: set[int]) -> Mapping[int, tuple[str, str]]:
    """Return address -> function with offset, and module.

    Args:
        lines: lines of /proc/kallsyms, in any order.
    """
    best: dict[int, tuple[int, str, str]] = {}
    for line in lines if addresses else ():
        fields = line.split()
        begin = int(fields[0], 16)
        if begin == 0 or fields[1] not in "tTwW":
            continue
        for address in addresses:
            if begin <= address and begin > best.get(address, (0,))[0]:
                module = fields[3].strip("[]") if len(fields) > 3 else ""
                best[address] = (begin, fields[2], module)
    return {
        address: (f"{name}+{address - begin:#x}", module)
        for address, (begin, name, module) in best.items()
    }


def reason_names(text: str) -> dict[int, str]:
    """Return number -> name of the kernel's drop reasons, from the format of its event."""
    _, _, symbols = text.partition("__print_symbolic(REC->reason,")
    pairs = re.findall(r"\{ *(0x[0-9a-f]+|\d+)U?L*, *\"(\w+)\" *\}", symbols)
    return {int(number, 0): name for number, name in pairs}
