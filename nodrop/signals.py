# SPDX-License-Identifier: GPL-2.0-only
"""Makes every polite way to end the command clean up like Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit status of a command that was interrupted, as shells have it."""


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt in the main thread on SIGTERM and SIGHUP too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
