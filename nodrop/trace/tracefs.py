# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's tracing files: an instance of our own, and what a killed run left there."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from nodrop.errors import NodropError, UnsupportedError

EVENT = "skb/kfree_skb"
_PLACE = "sys/kernel/tracing"
_LOCKDOWN = "sys/kernel/security/lockdown"
_CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 1 << 14 | 1 << 18
_LEFT = re.compile(r"nodrop_why_(?P<pid>\d+)_(?P<namespace>\d+)")
_BUSY_S = 2.0


class Tracefs:
    """The tracing files of the running kernel.

    Args:
        root: where ``sys`` and ``proc`` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.path = root / _PLACE

    def open(self) -> None:
        """Make sure that the files are there and may be used; clean up after killed runs.

        Where tracefs is not mounted it is mounted for this process alone.

        Raises:
            NodropError: a right is missing.
            UnsupportedError: the kernel has no such files or no such event, or is locked down.
        """
        try:
            if not self.path.is_dir():
                raise UnsupportedError("This kernel has no tracing files (CONFIG_TRACING).")
            if not (self.path / "events").is_dir():
                _mount(self.path)
            if not (self.path / "events" / EVENT / "format").exists():
                raise UnsupportedError(
                    "This kernel does not tell what it drops (no tracepoint skb:kfree_skb)."
                )
            self.sweep()
        except OSError as error:
            raise self.refused(error) from error

    def refused(self, error: OSError) -> NodropError:
        """Return the error that tells why the kernel does not let us trace."""
        with suppress(OSError):
            if "[confidentiality]" in (self.root / _LOCKDOWN).read_text():
                return UnsupportedError(
                    "The kernel is locked down (confidentiality): nobody may trace it.",
                    "cat /sys/kernel/security/lockdown",
                )
        if error.errno in (errno.EPERM, errno.EACCES):
            return NodropError(
                "Only root can see what the kernel drops (CAP_SYS_ADMIN, in the first user "
                "namespace).",
                "Run this as root.",
            )
        if error.errno in (errno.ENODEV, errno.ENOSYS):
            return UnsupportedError("This kernel has no tracing files (CONFIG_TRACING).")
        where = f" ({error.filename})" if error.filename else ""
        return NodropError(f"The kernel's tracer refuses: {error.strerror}{where}.")

    def own_name(self) -> str:
        """Return what everything of this process is called."""
        return f"nodrop_why_{os.getpid()}_{self._namespace()}"

    def instance(self, name: str) -> Path:
        """Return where an instance is; it need not be there."""
        return self.path / "instances" / name

    def make(self, name: str) -> Path:
        """Make an instance; OSError when the kernel refuses."""
        path = self.instance(name)
        path.mkdir()
        return path

    def append(self, file: str | Path, text: str) -> None:
        """Add a line to a file of the tracer, whose other lines may be somebody else's."""
        path = self.path / file
        try:
            # Opened for truncation, these files forget all that others have set.
            fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(fd, text.encode() + b"\n")
            finally:
                os.close(fd)
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None

    def remove(self, name: str) -> None:
        """Remove an instance and all probes that have its name; what is not there is fine.

        Raises:
            NodropError: they do not go.
        """
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._remove(name)
                return
            except OSError as error:
                # Somebody may be looking at them.
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise NodropError(
                        f"{self.instance(name)} cannot be removed: {error.strerror}.",
                        "The next 'nodrop why' tries it again.",
                    ) from error
            time.sleep(0.05)

    def sweep(self) -> None:
        """Remove what runs left that were killed: those of this PID namespace that are gone."""
        found = set()
        for folder in ("instances", "events"):
            with suppress(OSError):
                found |= {path.name for path in (self.path / folder).iterdir()}
        for name in sorted(found):
            match = _LEFT.fullmatch(name)
            if (
                match
                and int(match["namespace"]) == self._namespace()
                and not (self.root / "proc" / match["pid"]).exists()
            ):
                with suppress(NodropError):
                    self.remove(name)

    def _remove(self, name: str) -> None:
        instance = self.instance(name)
        if instance.is_dir():
            for trigger in instance.glob(f"events/{name}/*/trigger"):
                _untrigger(self, trigger)
            with suppress(FileNotFoundError):
                _untrigger(self, instance / "events" / EVENT / "trigger")
            instance.rmdir()
        for probe in sorted((self.path / "events" / name).glob("*/format")):
            self.append("dynamic_events", f"-:{name}/{probe.parent.name}")

    def _namespace(self) -> int:
        return (self.root / "proc/self/ns/pid").stat().st_ino


def _untrigger(files: Tracefs, path: Path) -> None:
    """Take back the triggers of an event in an instance of our own."""
    for line in path.read_text().splitlines():
        if line.startswith("hist:"):
            # "hist:keys=...:vals=... if FILTER [active]": as it was asked for, and its state
            files.append(path, "!" + re.sub(r" \[\w+\]$", "", line))


def reason_names(text: str) -> dict[int, str]:
    """Return the kernel's names of drop reasons, from the format of its event."""
    _, _, symbols = text.partition("__print_symbolic(REC->reason,")
    found = re.findall(r"\{ *(0x[0-9a-f]+|\d+)U?L*, *\"(\w+)\" *\}", symbols)
    return {int(number, 0): name for number, name in found}


def _mount(path: Path) -> None:
    """Mount tracefs where only this process and its children see it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))

    check(libc.unshare(_CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None))
    check(libc.mount(b"nodrop", os.fsencode(path), b"tracefs", ctypes.c_ulong(0), None))
