# SPDX-License-Identifier: GPL-2.0-only
"""Errors and signals that end a command, each with its exit status."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

FAILED = 1
USAGE = 2
UNSUPPORTED = 4
INTERRUPTED = 130
"""Exit status of an interrupted command, by convention of shells."""


class NodropError(Exception):
    """A failure that is reported to the user.

    Args:
        message: what failed: a sentence, without a newline at its end.
        hint: what the user can do; may be empty.
        status: exit status of the process, 1 to 255; None: the class's.
    """

    STATUS = FAILED

    def __init__(self, message: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = self.STATUS if status is None else status

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(NodropError):
    """The command line is wrong."""

    STATUS = USAGE


class UnsupportedError(NodropError):
    """The kernel or machine does not support the command."""

    STATUS = UNSUPPORTED


def refused(what: str, number: int | None, capability: str = "") -> NodropError:
    """Return the error for EPERM or EACCES.

    Args:
        what: what was refused: "change /etc/x".
        number: the errno, which is named to root: something else than permissions refused it.
        capability: what an ordinary user lacks; "": only root may.
    """
    if os.geteuid() != 0:
        needs = f" ({capability})" if capability else ""
        return NodropError(f"Only root can {what}{needs}.", "Run this as root.")
    number = number or errno.EPERM
    return NodropError(
        f"The kernel does not let root {what}: {os.strerror(number)} "
        f"({errno.errorcode.get(number, number)}).",
        "It may be this container, SELinux or AppArmor ('dmesg', the audit log), lockdown, or "
        "for a file 'chattr +i' (lsattr) or a read-only mount.",
    )


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt in the main thread on SIGTERM and SIGHUP too, so that it cleans up.

    A signal that the caller ignores stays ignored, as SIGHUP by nohup. Not so SIGCHLD: children
    could not be waited for.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C, SIGTERM and SIGHUP during the body; ignored ones stay ignored.

    Yields:
        A function that returns whether one of them arrived.
    """
    arrived: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda seen, _frame: arrived.append(seen))
        yield lambda: bool(arrived)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
