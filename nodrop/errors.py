# SPDX-License-Identifier: GPL-2.0-only
"""Errors that end a command, each with its exit status."""

from __future__ import annotations

FAILED = 1
USAGE = 2
UNSUPPORTED = 4


class NodropError(Exception):
    """A failure that is reported to the user.

    Args:
        message: what failed: a sentence, without a newline at its end.
        hint: what the user can do; may be empty.
        status: exit status of the process, 1 to 255.
    """

    def __init__(self, message: str, hint: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(NodropError):
    """The command line is wrong (exit status 2)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


class UnsupportedError(NodropError):
    """The kernel or machine does not support the command (exit status 4)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, UNSUPPORTED)
