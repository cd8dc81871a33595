# SPDX-License-Identifier: GPL-2.0-only
"""The errors that end a command, each with the exit status it stands for."""

from __future__ import annotations

FAILED = 1
USAGE = 2
UNSUPPORTED = 4


class NodropError(Exception):
    """Something failed; the text is one sentence for the user.

    Args:
        message: what is wrong, without a trailing newline.
        hint: what the user can do about it; may be empty.
        status: the process exit status, 1 to 255.
    """

    def __init__(self, message: str, hint: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(NodropError):
    """The command line makes no sense (exit status 2)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, USAGE)


class UnsupportedError(NodropError):
    """The command is fine but this machine cannot do it (exit status 4)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, UNSUPPORTED)
