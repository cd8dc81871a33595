# SPDX-License-Identifier: GPL-2.0-only
"""The deadline of a whole run, which bounds every wait in it.

``scripts/test`` sets NODROP_DEADLINE for each of its stages, in seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import os
import time

VARIABLE = "NODROP_DEADLINE"


def at_most(seconds: float | None) -> float | None:
    """Return ``seconds``, or the time left until the deadline if that is less.

    Args:
        seconds: the limit; None: none.

    Returns:
        Seconds, at least 0; None with neither a limit nor a deadline.
    """
    end = os.environ.get(VARIABLE)
    if end is None:
        return seconds
    left = max(float(end) - time.monotonic(), 0.0)
    return left if seconds is None else min(seconds, left)
