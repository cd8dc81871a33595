# SPDX-License-Identifier: GPL-2.0-only
"""How slow this guest is: the lab says so, in NODROP_SLOW, for emulated machines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SLOW = max(1.0, float(os.environ.get("NODROP_SLOW", "1")))
"""How many times longer than under User-Mode Linux things take here."""
LEAST_S = float(os.environ.get("NODROP_LEAST_S", "60"))
"""No wait ends sooner, however short it is on an idle machine: a machine can stand still."""
LOAD = 10.0 if LEAST_S >= 60 else 3.0
"""How many times longer than on an idle machine what must happen may take."""


def time_limit(seconds: float) -> float:
    """Return how long to wait, seconds, for what must happen but need not happen soon.

    Only for bounds that tell "late" from "never": nobody waits that long unless a test fails.
    """
    return max(seconds * max(SLOW, LOAD), LEAST_S)


def scaled(seconds: float) -> float:
    """Return how long something lasts here, seconds, that lasts ``seconds`` on a fast guest."""
    return seconds * SLOW


STEP_S = 0.0005


def wait_until(condition: Callable[[], object]) -> bool:
    """Wait until something is so; False: it is not so within LEAST_S."""
    end = time.monotonic() + LEAST_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(STEP_S)
    return True
