# SPDX-License-Identifier: GPL-2.0-only
"""Time limits for slow guests: the lab sets LAB_SLOW if it emulates the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SLOW = max(1.0, float(os.environ.get("LAB_SLOW", "1")))
"""Factor by which this guest is slower than UML."""
LEAST_S = float(os.environ.get("LAB_LEAST_S", "60"))
"""The shortest time limit, seconds, however short a wait is: the host may pause for a minute."""
LOAD = 10.0 if LEAST_S >= 60 else 3.0
"""Factor by which a busy machine may be slower than an idle one."""


def time_limit(seconds: float) -> float:
    """Return a time limit, seconds, for what normally takes up to ``seconds``.

    Only for limits that distinguish "late" from "never": no test waits that long unless it fails.
    """
    return max(seconds * max(SLOW, LOAD), LEAST_S)


def scaled(seconds: float) -> float:
    """Return a duration of ``seconds`` on a fast guest, scaled to this one."""
    return seconds * SLOW


def wait_until(
    condition: Callable[[], object], seconds: float = 0.0, *, step_s: float = 0.0005
) -> bool:
    """Wait until a condition is true; return False if it is not within time_limit(seconds)."""
    end = time.monotonic() + time_limit(seconds)
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True
