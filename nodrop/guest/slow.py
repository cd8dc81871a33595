# SPDX-License-Identifier: GPL-2.0-only
"""How slow this guest is: the lab says so, in NODROP_SLOW, for emulated machines."""

from __future__ import annotations

import os

SLOW = max(1.0, float(os.environ.get("NODROP_SLOW", "1")))
"""How many times longer than under User-Mode Linux things may take here."""


def patience(seconds: float) -> float:
    """Return how long to wait, seconds, for what must happen but need not happen soon.

    Only for bounds that tell "late" from "never". Times that a test is about stay as they are.
    """
    return seconds * SLOW
