# SPDX-License-Identifier: GPL-2.0-only
"""A program on a pseudo-terminal: sends keys, reads the output."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

TIME_LIMIT_S = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[a-zA-Z]|\x1b[=>()][0B]?|\x1b\][^\a\x1b]*(?:\a|\x1b\\)|\r")


class PseudoTerminal:
    """A program and its terminal; a context manager that hangs up.

    Args:
        argv: the program.
        environment: added to this process's environment.
        lines, columns: the terminal's size.

    Attributes:
        before: the terminal's settings before the program started.
        text: output that no sees() has consumed yet.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        environment: Mapping[str, str],
        lines: int = 30,
        columns: int = 100,
    ) -> None:
        self._master, self._slave = os.openpty()
        self.resize(lines, columns)
        self.before = self.settings()
        self.text = ""
        self.process = subprocess.Popen(
            argv,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)
            self.process.wait(TIME_LIMIT_S)
        os.close(self._master)
        os.close(self._slave)

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def sees(self, pattern: str) -> str:
        """Wait for a text; consume and return the output up to its end, without escapes."""
        deadline = time.monotonic() + TIME_LIMIT_S
        while not (match := re.search(pattern, shown := ESCAPES.sub("", self.text))):
            assert self.reads(deadline - time.monotonic()), f"no {pattern!r} in {shown!r}"
        self.text = shown[match.end() :]
        return shown[: match.end()]

    def reads(self, seconds: float) -> bool:
        """Return whether there is output within a time, seconds."""
        ready = bool(select.select([self._master], [], [], max(seconds, 0))[0])
        if ready:
            self.text += os.read(self._master, 65536).decode(errors="replace")
        return ready

    def ends(self) -> int:
        """Wait for the end while reading, so that the pseudo-terminal does not fill up."""
        deadline = time.monotonic() + TIME_LIMIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.reads(0.05)
        assert self.process.poll() is not None, self.text
        return self.process.returncode
