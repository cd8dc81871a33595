# SPDX-License-Identifier: GPL-2.0-only
"""Boots a guest once more when its end says nothing about what it ran."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from lab.channels import DiedAtBoot, GuestRun, NeverAnswered, StuckAtPowerOff
from nodrop.errors import NodropError

VARIABLE = "NODROP_REPEATS"
"""Names a file that gets a line for each repetition."""

Boot = Callable[[], GuestRun]
"""Boots a guest and returns what it left."""

_FAILED = re.compile(r"^(\[ *[\d.]+\])? *not ok ", re.MULTILINE)
"""A test that failed, in what a command prints or, of KUnit, in the kernel's log."""

_log = logging.getLogger(__name__)


def insist(boot: Boot, *, listened: bool = False) -> GuestRun:
    """Return what a guest left; boot it a second time when the first boot proved nothing.

    That is: its kernel died before the command started or did not start it in time; or the
    command succeeded and the kernel did not power off, without a complaint. A command that
    failed has failed, and so has a test that is told in its output.

    Args:
        listened: somebody has heard the command already, so that it is not run again.

    Raises:
        GuestDied, GuestTimeout: the second time as well.
    """
    try:
        return boot()
    except StuckAtPowerOff as error:
        if error.run.status or _FAILED.search(f"{error.run.output}\n{error.run.log}"):
            return error.run
        _record(error, "is taken as it is" if listened else "is booted again")
        if listened:
            return error.run
    except (DiedAtBoot, NeverAnswered) as error:
        _record(error, "is booted again")
    return boot()


def _record(error: NodropError, what: str) -> None:
    words = f"A guest {what} ({type(error).__name__}): {error.message}"
    _log.warning("%s\n%s", words, error.hint)
    if path := os.environ.get(VARIABLE):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{words} {test}\n{error.hint}\n\n")
