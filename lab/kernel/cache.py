# SPDX-License-Identifier: GPL-2.0-only
"""A cache of directories, each named by a digest of its inputs.

An entry is built in a hidden directory beside its final path and renamed when it is complete, under
a lock: no process sees an incomplete entry, and two runs do not build the same one. The next run
removes what a killed run left.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError

STAMP = ".complete.json"
LOCK_TIMEOUT_S = 1800.0
"""How long to wait for another run that builds the same entry, seconds; at most LAB_DEADLINE."""

NEEDED_BYTES = 2 << 30
"""Free disk space for the source, its package and two kernels being built."""

_LOCK_POLL_S = 0.2
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ELSEWHERE = "Set LAB_CACHE to a directory that you may write to."
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)


def root() -> Path:
    """Return the cache's directory: LAB_CACHE, else ``nodrop`` in the user's cache directory."""
    if own := os.environ.get("LAB_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "nodrop"


def digest(*parts: object) -> str:
    """Return a digest of values that JSON can hold, 16 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def explain_disk(place: Path) -> Iterator[None]:
    """Turn "disk full" and "read-only" errors of a directory into messages for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise full(place) from error
        if error.errno in _DENIED:
            raise NodropError(
                f"Cannot use {error.filename or place}: {error.strerror}.",
                _ELSEWHERE,
            ) from error
        raise


def full(place: Path) -> NodropError:
    return NodropError(
        f"The disk that holds {place} is full.",
        f"Free some space (a first build needs {NEEDED_BYTES >> 30} GB), "
        "or set LAB_CACHE to another directory.",
    )


def free_bytes(place: Path) -> int:
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


class Cache:
    """The entries of one kind, such as ``kernels``.

    Args:
        kind: name of the directory in the cache's root.
        keep: how many entries to keep; the least recently used are removed first.
    """

    def __init__(self, kind: str, keep: int) -> None:
        self.kind = kind
        self.keep = keep
        self.place = root() / kind

    def find(self, key: str) -> Path | None:
        """Return a complete entry, or None. Writes only its time of use.

        Raises:
            NodropError: this is root, and another user can write to the cache.
        """
        entry = self.place / key
        _refuse_others(root(), self.place, entry)
        try:
            stamp = json.loads((entry / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        # Object trees hold absolute paths: an entry that was moved is not valid.
        if stamp.get("path") != str(entry):
            return None
        with suppress(OSError):  # a read-only cache is fine as long as it has the entry
            os.utime(entry / STAMP)
        return entry

    def get(self, key: str, make: Callable[[Path, Path], None]) -> Path:
        """Return the entry, built by ``make(temporary, final)`` if it is missing.

        Args:
            make: fills the temporary directory, which is then renamed to the final one.
        """
        if entry := self.find(key):
            return entry
        entry = self.place / key
        with explain_disk(self.place):
            self.place.mkdir(parents=True, exist_ok=True)
        with explain_disk(self.place), self._lock(key):
            if found := self.find(key):
                return found
            self._sweep()
            temporary = self._temporary(key)
            _remove(temporary)
            temporary.mkdir()
            try:
                make(temporary, entry)
                stamp = json.dumps({"path": str(entry), "made": time.time()})
                (temporary / STAMP).write_text(stamp, encoding="utf-8")
                _remove(entry)
                temporary.rename(entry)
            finally:
                _remove(temporary)
            self._evict(entry)
        return entry

    def _temporary(self, key: str) -> Path:
        return self.place / f".{key}.making"

    @contextmanager
    def _lock(self, key: str, *, wait: bool = True) -> Iterator[None]:
        with (self.place / f".{key}.lock").open("w") as handle:
            end = time.monotonic() + (proc.at_most(LOCK_TIMEOUT_S) or 0.0 if wait else 0.0)
            announced = not wait
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        raise NodropError(
                            f"Another run has been building {self.place / key} for too long.",
                            "Wait for it or stop it, then try again.",
                        ) from None
                if not announced:
                    print(f"Another run builds {self.place / key}; waiting ...", file=sys.stderr)
                    announced = True
                time.sleep(_LOCK_POLL_S)
            yield

    def _sweep(self) -> None:
        """Remove the incomplete entries of killed runs."""
        for leftover in self.place.glob(".*.making"):
            key = leftover.name.removeprefix(".").removesuffix(".making")
            try:
                with self._lock(key, wait=False):
                    _remove(leftover)
            except NodropError:
                continue  # another run is building it

    def _evict(self, newest: Path) -> None:
        """Remove the least recently used entries beyond ``keep``; other runs may do so, too."""
        used: list[tuple[float, Path]] = []
        for stamp in self.place.glob(f"*/{STAMP}"):
            with suppress(FileNotFoundError):
                used.append((stamp.stat().st_mtime, stamp.parent))
        old = [entry for _, entry in sorted(used) if entry != newest]
        for entry in old[: max(len(old) + 1 - self.keep, 0)]:
            with suppress(FileNotFoundError):
                (entry / STAMP).unlink()  # the run that removes the stamp also removes the rest
                _remove(entry)


def _refuse_others(*places: Path) -> None:
    """Refuse, as root, a cache that another user can write to: root boots and loads its contents.

    Raises:
        NodropError: a directory or one above it belongs to another user or is writable by others.
    """
    if os.geteuid() != 0:
        return
    above = {folder for place in places for folder in place.resolve().parents} - {*places}
    for place in (*places, *sorted(above)):
        try:
            found = place.stat()
        except OSError:
            continue
        writable = found.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if found.st_gid else 0))
        if place in above and found.st_mode & stat.S_ISVTX:
            writable = 0  # sticky: others can neither rename nor remove root's entries
        if found.st_uid != 0 or writable:
            whose = f"belongs to user {found.st_uid}" if found.st_uid else "is writable by others"
            raise NodropError(
                f"{place} {whose}, and root would run its contents.",
                "Run this as that user, or set LAB_CACHE to a directory of root's own, "
                "such as /var/cache/nodrop-lab.",
            )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
