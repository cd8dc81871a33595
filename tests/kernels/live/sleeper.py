# SPDX-License-Identifier: GPL-2.0-only
"""A program that sleeps in read(), which a transition has to wake."""

from __future__ import annotations

import ctypes
import os
import threading
import time

from harness import Sender, check, equal

from guestlib.timing import time_limit

PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)


class Sleeper:
    """Read a tun file with blocking read() calls, in a thread, as a simple program does.

    It makes the system call itself: Python's read() retries after EINTR. The thread's name is
    invalid UTF-8: the command must be able to list it among the tasks that delay a transition.

    Args:
        fd: the file; it becomes blocking.
        pause_s: sleep after each packet, s.
    """

    def __init__(self, fd: int, *, pause_s: float = 0.0) -> None:
        os.set_blocking(fd, True)
        self.packets = 0
        self.errors: list[str] = []
        self._fd = fd
        self._pause_s = pause_s
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sleeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        Sender(1).finished(5)
        self._thread.join(time_limit(5))
        check(not self._thread.is_alive(), "the reader hangs")
        equal(self.errors, [], "errors of read()")

    def _run(self) -> None:
        _libc.prctl(PR_SET_NAME, b"\xff", 0, 0, 0)
        buffer = ctypes.create_string_buffer(65536)
        while not self._stop:
            if _libc.read(self._fd, buffer, len(buffer)) < 0:
                self.errors.append(os.strerror(ctypes.get_errno()))
                return
            self.packets += 1
            if self._pause_s:
                time.sleep(self._pause_s)
