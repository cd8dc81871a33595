# SPDX-License-Identifier: GPL-2.0-only
"""The user's terminal while it is connected to a shell in a guest."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

ESCAPE = b"\x1d"
"""Ctrl-]: kills the guest at any time. All other keys go to the guest, Ctrl-C included."""

_END = b"\x04"


class Terminal:
    """The terminal of stdin and stdout in raw mode; a context manager that restores it."""

    def __init__(self) -> None:
        self._keys = sys.stdin.fileno()
        self._screen = sys.stdout.fileno()
        self._before: list[Any] = []
        self._handler: Any = None
        self.on_resize: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._keys)
        self._handler = signal.signal(signal.SIGWINCH, lambda *_: self.on_resize())
        tty.setraw(self._keys)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGWINCH, self._handler)
        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def fileno(self) -> int:
        """Return the file descriptor to read keys from."""
        return self._keys

    @property
    def size(self) -> tuple[int, int]:
        """Lines and columns; 24 and 80 if the terminal does not report them."""
        try:
            columns, lines = os.get_terminal_size(self._keys)
        except OSError:
            columns, lines = 0, 0
        return lines or 24, columns or 80

    def take(self) -> bytes:
        """Return the keys that were pressed; Ctrl-D if the terminal has hung up.

        Raises:
            KeyboardInterrupt: the escape key is among them.
        """
        try:
            data = os.read(self._keys, 4096)
        except OSError:  # EIO: the other side is closed
            data = b""
        if ESCAPE in data:
            raise KeyboardInterrupt
        return data or _END

    def show(self, data: bytes) -> None:
        """Write the guest's output without translation."""
        while data:
            data = data[os.write(self._screen, data) :]
