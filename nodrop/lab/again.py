# SPDX-License-Identifier: GPL-2.0-only
"""Boots a guest once more when its end says nothing about what it ran."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.lab.hearing import DiedAtBoot, GuestRun, NeverAnswered, StuckAtPowerOff
from nodrop.lab.terminal import Terminal

VARIABLE = "NODROP_REPEATS"
"""Names a file that gets a line for each repetition."""

Boot = Callable[[], GuestRun]
"""Boots a guest and returns what it left."""

_log = logging.getLogger(__name__)


def insist(boot: Boot, terminal: Terminal | None = None) -> GuestRun:
    """Return what a guest left; boot it a second time when the first boot said nothing.

    That is: its kernel died before the command started or did not start it in time, or did not
    power off after the command's end. A kernel that complained at power-off is not repeated.

    Args:
        terminal: the command's; what has one is not repeated.

    Raises:
        GuestDied, GuestTimeout: the second time as well.
    """
    try:
        return boot()
    except (DiedAtBoot, NeverAnswered, StuckAtPowerOff) as error:
        if terminal:
            raise
        _record(error)
    return boot()


def _record(error: NodropError) -> None:
    words = f"A guest is booted again ({type(error).__name__}): {error.message}"
    _log.warning("%s\n%s", words, error.hint)
    if path := os.environ.get(VARIABLE):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{words} {test}\n{error.hint}\n\n")
