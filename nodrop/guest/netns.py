# SPDX-License-Identifier: GPL-2.0-only
"""Named network namespaces of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nodrop.guest.command import ip_batch


@contextmanager
def namespaces(*names: str) -> Iterator[None]:
    """Make namespaces, with nothing in them; delete them at the end.

    New ones for every run: TCP remembers its peers in a namespace.
    """
    ip_batch([f"netns add {name}" for name in names])
    try:
        yield
    finally:
        ip_batch([f"netns delete {name}" for name in names])
