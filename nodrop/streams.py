# SPDX-License-Identifier: GPL-2.0-only
"""stdout and stderr with defined behaviour on errors.

If stdout cannot be written, the command ends (:class:`WriteError`). If stderr cannot be written,
its text is discarded and the command continues. Characters that cannot be encoded become ``?``.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

CLOSED = 141
"""Exit status if stdout's pipe was closed, as shells report SIGPIPE."""


class WriteError(Exception):
    """stdout cannot be written any more.

    Args:
        error: the error of the write.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.closed = error.errno == errno.EPIPE


class _Raw(io.FileIO):
    """A file descriptor for data: the first failed write raises WriteError."""

    failed = False

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        if self.failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self.failed = True
            self._on_error(error)
            return len(data)

    def _on_error(self, error: OSError) -> None:
        raise WriteError(error) from error


class _Messages(_Raw):
    """A file descriptor for messages: what cannot be written is discarded."""

    def _on_error(self, error: OSError) -> None:
        pass


def _wrapped(raw: _Raw, encoding: str, *, by_line: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "replace", line_buffering=by_line or raw.isatty()
    )


def discard() -> None:
    """Discard stdout's buffer.

    After an interrupt during a write, it is unknown how much of the buffer was written.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Raw):
        raw.failed = True


def prepare() -> None:
    """Replace sys.stdout and sys.stderr; call once, at the start.

    Also open closed descriptors, which the next open() would otherwise reuse.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # Open it for the opposite direction, so that using it fails.
            os.open(os.devnull, mode)
    encoding = getattr(sys.stdout or sys.stderr, "encoding", None) or "utf-8"
    if sys.stdout is sys.__stdout__:
        sys.stdout = _wrapped(_Raw(1, "wb", closefd=False), encoding, by_line=False)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrapped(_Messages(2, "wb", closefd=False), encoding, by_line=True)
