# SPDX-License-Identifier: GPL-2.0-only
"""The deadline of a whole run, which nothing in it may wait beyond.

``scripts/test`` sets NODROP_DEADLINE for each of its stages, to a value of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import os
import time

VARIABLE = "NODROP_DEADLINE"


def at_most(seconds: float | None) -> float | None:
    """Return ``seconds``, or what is left until the deadline where that is less.

    Args:
        seconds: None: no limit.

    Returns:
        Seconds, at least 0; None where there is neither a limit nor a deadline.
    """
    end = os.environ.get(VARIABLE)
    if end is None:
        return seconds
    left = max(float(end) - time.monotonic(), 0.0)
    return left if seconds is None else min(seconds, left)
