# SPDX-License-Identifier: GPL-2.0-only
"""The livepatch in a guest: in and out, and how long each takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.guest.command import tool
from lab.guest.failure import GuestError
from lab.guest.slow import patience

PATCH = Path("/sys/kernel/livepatch/nodrop_live")
TRANSITION_S = patience(20.0)
"""Longer than the 15 s after which livepatch itself wakes readers."""


def loaded(module: str) -> bool:
    """Whether a module is in the kernel."""
    return Path("/sys/module", module).exists()


def load() -> float:
    """Make the running drivers lossless; return how long it took, seconds."""
    folder = Path(os.environ["NODROP_MODULES"])
    start = time.monotonic()
    if not loaded("nodrop"):
        tool(["insmod", str(folder / "nodrop.ko")])
    tool(["insmod", str(folder / "nodrop_live.ko")])
    _wait(lambda: (PATCH / "transition").read_text() == "0\n", "the way in does not end")
    return time.monotonic() - start


def unload() -> float:
    """Make the running drivers what they were; return how long it took, seconds."""
    start = time.monotonic()
    (PATCH / "enabled").write_text("0")
    _wait(lambda: not PATCH.exists(), "the way out does not end")
    took = time.monotonic() - start
    tool(["rmmod", "nodrop_live"])
    tool(["rmmod", "nodrop"])
    return took


def holders() -> list[str]:
    """Names of the tasks that a transition waits for."""
    found = []
    target = "1" if (PATCH / "enabled").read_text() == "1\n" else "0"
    for state in Path("/proc").glob("[0-9]*/task/[0-9]*/patch_state"):
        try:
            if state.read_text().strip() not in ("-1", target):
                found.append((state.parent / "comm").read_text(errors="replace").strip())
        except OSError:
            continue
    return found


@contextmanager
def live() -> Iterator[None]:
    """The livepatch is in for the block."""
    load()
    try:
        yield
    finally:
        unload()


def _wait(condition, text: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + TRANSITION_S
    while not condition():
        if time.monotonic() > deadline:
            raise GuestError(f"{text}: {', '.join(holders()) or 'nobody'} holds it up")
        time.sleep(0.02)
