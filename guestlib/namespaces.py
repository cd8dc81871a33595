# SPDX-License-Identifier: GPL-2.0-only
"""Creates and enters named network namespaces."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guestlib.process import ip_batch, netns_path

_CLONE_NEWNET = 0x40000000


@contextmanager
def namespaces(*names: str) -> Iterator[None]:
    """Create empty namespaces; delete them at the end.

    Every run needs new ones: TCP caches metrics of its peers in a namespace.
    """
    ip_batch([f"netns add {name}" for name in names])
    try:
        yield
    finally:
        ip_batch([f"netns delete {name}" for name in names])


@contextmanager
def inside(netns: str | None) -> Iterator[None]:
    """Enter a named network namespace for the block; sockets created there stay in it.

    Args:
        netns: its name; None or empty: stay in this one.

    Raises:
        OSError: it cannot be entered.
    """
    if not netns:
        yield
        return
    with Path("/proc/self/ns/net").open("rb") as here, netns_path(netns).open("rb") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(fd: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
