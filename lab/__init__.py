# SPDX-License-Identifier: GPL-2.0-only
"""Finds, builds and boots kernels, and runs commands in guests."""

from __future__ import annotations

import os

from nodrop import proc

DEADLINE = "LAB_DEADLINE"
"""Environment variable: when every wait ends, seconds of CLOCK_MONOTONIC. scripts/checks.py sets it
for each of its stages."""


def meet_deadline() -> None:
    """Bound every wait of this process by LAB_DEADLINE, if it is set."""
    proc.deadline = float(os.environ[DEADLINE]) if DEADLINE in os.environ else None
