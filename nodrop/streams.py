# SPDX-License-Identifier: GPL-2.0-only
"""stdout and stderr that end well.

Data that cannot be written end the command (:class:`Lost`). Talk that cannot be written
is dropped: the work goes on. Characters that a stream does not know become ``?``.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

CLOSED = 141
"""Exit status when the reader of stdout went away, as shells tell of SIGPIPE."""


class Lost(Exception):
    """stdout takes nothing more.

    Args:
        error: why.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.closed = error.errno == errno.EPIPE


class _Raw(io.FileIO):
    """A file descriptor for data: what cannot be written is Lost, once."""

    lost = False

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        if self.lost:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self.lost = True
            self._tell(error)
            return len(data)

    def _tell(self, error: OSError) -> None:
        raise Lost(error) from error


class _Talk(_Raw):
    """A file descriptor for talk: what cannot be written is dropped."""

    def _tell(self, error: OSError) -> None:
        pass


def _wrapped(raw: _Raw, encoding: str, *, by_line: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "replace", line_buffering=by_line or raw.isatty()
    )


def drop() -> None:
    """Drop what waits to be written to stdout.

    Whoever is interrupted while he writes does not know how much of it was written.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Raw):
        raw.lost = True


def prepare() -> None:
    """Put this module's streams in the places of Python's own; call it once, at the start.

    A descriptor that is closed would become that of the first file that is opened.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The wrong direction: whoever uses it is told.
            os.open(os.devnull, mode)
    encoding = getattr(sys.stdout or sys.stderr, "encoding", None) or "utf-8"
    if sys.stdout is sys.__stdout__:
        sys.stdout = _wrapped(_Raw(1, "wb", closefd=False), encoding, by_line=False)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrapped(_Talk(2, "wb", closefd=False), encoding, by_line=True)
