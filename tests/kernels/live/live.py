# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch in a guest: in and out, and how long each takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.guest.timing import time_limit
from nodrop.host.livepatch import Livepatch

MODULES = Path(os.environ["NODROP_MODULES"])
PATCH = Livepatch()
TRANSITION_S = time_limit(20.0)
"""Longer than the 15 s after which livepatch itself wakes readers."""


def load() -> float:
    """Make the running drivers lossless; return how long it took, seconds."""
    start = time.monotonic()
    PATCH.enter(MODULES, TRANSITION_S, lambda _: None)
    return time.monotonic() - start


def unload() -> float:
    """Make the running drivers what they were; return how long it took, seconds."""
    start = time.monotonic()
    PATCH.leave(TRANSITION_S, lambda _: None)
    return time.monotonic() - start


@contextmanager
def live() -> Iterator[None]:
    """The livepatch is in for the block."""
    load()
    try:
        yield
    finally:
        unload()
