# SPDX-License-Identifier: GPL-2.0-only
"""Boots a guest a second time if the first boot failed before or after its command."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from lab.channels import BootTimeout, DiedAtBoot, GuestRun, StuckAtPowerOff
from nodrop.errors import NodropError

VARIABLE = "NODROP_REPEATS"
"""Environment variable: a file that gets an entry for each guest that is booted again."""

Boot = Callable[[], GuestRun]
"""Boots a guest and returns its result."""

_FAILED = re.compile(r"^(\[ *[\d.]+\])? *not ok ", re.MULTILINE)
"""A failed test in the command's output, or a failed KUnit test in the kernel log."""

_log = logging.getLogger(__name__)


def boot_with_retry(boot: Boot, *, observed: bool = False) -> GuestRun:
    """Return a guest's result; boot it a second time if the first boot proved nothing.

    That is so if the kernel died before the command started or did not start it in time, and if
    the command succeeded but the kernel did not power off, without a splat. A command that
    failed is not repeated, nor is one whose output or kernel log shows a failed test.

    Args:
        observed: the caller has already seen the command's output, so it must not run again.

    Raises:
        GuestDied, GuestTimeout: the second boot failed as well.
    """
    try:
        return boot()
    except StuckAtPowerOff as error:
        if error.run.status or _FAILED.search(f"{error.run.output}\n{error.run.log}"):
            return error.run
        _record(error, "is not booted again" if observed else "is booted again")
        if observed:
            return error.run
    except (DiedAtBoot, BootTimeout) as error:
        _record(error, "is booted again")
    return boot()


def _record(error: NodropError, what: str) -> None:
    words = f"A guest {what} ({type(error).__name__}): {error.message}"
    _log.warning("%s\n%s", words, error.hint)
    if path := os.environ.get(VARIABLE):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{words} {test}\n{error.hint}\n\n")
