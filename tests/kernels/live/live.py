# SPDX-License-Identifier: GPL-2.0-only
"""Load and unload the livepatch in a guest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guestlib.timing import time_limit
from nodrop.host.livepatch import Livepatch

MODULES = Path(os.environ["NODROP_MODULES"])
PATCH = Livepatch()
TRANSITION_S = time_limit(20.0)
"""Longer than the 15 s after which the kernel signals tasks that delay the transition."""


def load() -> float:
    """Load the livepatch, whose guard then never trips; return the transition's duration, s."""
    start = time.monotonic()
    PATCH.enter(MODULES, TRANSITION_S, lambda _: None)
    seconds = time.monotonic() - start
    Path("/sys/module/nodrop/parameters/guard_ms").write_text("0")
    return seconds


def unload() -> float:
    """Unload the livepatch; return the duration of the transition, s."""
    start = time.monotonic()
    PATCH.leave(TRANSITION_S, lambda _: None)
    return time.monotonic() - start


@contextmanager
def live() -> Iterator[None]:
    """Load the livepatch for the block."""
    load()
    try:
        yield
    finally:
        unload()
