# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's tracing files (tracefs): our instance, and cleanup after killed runs."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError

EVENT = "skb/kfree_skb"
_PLACE = "sys/kernel/tracing"
_LOCKDOWN = "sys/kernel/security/lockdown"
_LEFT = re.compile(r"nodrop_why_(?P<pid>\d+)_(?P<namespace>\d+)")
_BUSY_S = 2.0


class Tracefs:
    """The tracing files of the running kernel.

    Args:
        root: parent of ``sys`` and ``proc``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.path = root / _PLACE

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
            except FileNotFoundError as error:
                raise UnsupportedError(
                    "The kernel's tracing files are not mounted.",
                    f"mount -t tracefs tracefs {self.path}",
                ) from error
            if not (self.path / "events" / EVENT / "format").exists():
                raise UnsupportedError(
                    "This kernel does not report drops: it has no tracepoint skb:kfree_skb."
                )
            self.sweep()
        except OSError as error:
            raise self.refused(error) from error

    def refused(self, error: OSError) -> NodropError:
        """Return the error for a failed access to the tracing files."""
        with suppress(OSError):
            if "[confidentiality]" in (self.root / _LOCKDOWN).read_text():
                return UnsupportedError(
                    "The kernel is locked down (confidentiality), which forbids tracing.",
                    "cat /sys/kernel/security/lockdown",
                )
        if error.errno in (errno.EPERM, errno.EACCES):
            return NodropError(
                "Only root can use the kernel's tracing files (CAP_SYS_ADMIN in the initial user "
                "namespace).",
                "Run this as root.",
            )
        if error.errno in (errno.ENODEV, errno.ENOSYS):
            return UnsupportedError("This kernel has no tracing files (CONFIG_TRACING).")
        where = f" ({error.filename})" if error.filename else ""
        return NodropError(f"The kernel's tracing files cannot be used: {error.strerror}{where}.")

    def instance(self) -> Path:
        """Return the path of this process's instance, which need not exist."""
        return self.path / "instances" / f"nodrop_why_{os.getpid()}_{self._namespace()}"

    def remove(self, instance: Path) -> None:
        """Remove an instance, if it exists.

        Raises:
            NodropError: it cannot be removed.
        """
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

    def sweep(self) -> None:
        """Remove the instances of killed runs of this PID namespace."""
        with suppress(FileNotFoundError):
            for path in sorted((self.path / "instances").iterdir()):
                match = _LEFT.fullmatch(path.name)
                if (
                    match
                    and int(match["namespace"]) == self._namespace()
                    and not (self.root / "proc" / match["pid"]).exists()
                ):
                    with suppress(NodropError):
                        self.remove(path)

    def functions(self, addresses: set[int]) -> Mapping[int, tuple[str, str]]:
        """Return address -> function with offset, and module, from /proc/kallsyms."""
        with suppress(OSError), (self.root / "proc/kallsyms").open(encoding="utf-8") as lines:
            return resolve(lines, addresses)
        return {}

    def _namespace(self) -> int:
        return (self.root / "proc/self/ns/pid").stat().st_ino


def resolve(lines: Iterable[str], addresses: set[int]) -> Mapping[int, tuple[str, str]]:
    """Return address -> function with offset, and module.

    Args:
        lines: lines of /proc/kallsyms, in any order.
    """
    best: dict[int, tuple[int, str, str]] = {}
    for line in lines if addresses else ():
        words = line.split()
        begin = int(words[0], 16)
        if begin == 0 or words[1] not in "tTwW":
            continue
        for address in addresses:
            if begin <= address and begin > best.get(address, (0,))[0]:
                module = words[3].strip("[]") if len(words) > 3 else ""
                best[address] = (begin, words[2], module)
    return {
        address: (f"{name}+{address - begin:#x}", module)
        for address, (begin, name, module) in best.items()
    }


def reason_names(text: str) -> dict[int, str]:
    """Return number -> name of the kernel's drop reasons, from the format of its event."""
    _, _, symbols = text.partition("__print_symbolic(REC->reason,")
    found = re.findall(r"\{ *(0x[0-9a-f]+|\d+)U?L*, *\"(\w+)\" *\}", symbols)
    return {int(number, 0): name for number, name in found}
