# SPDX-License-Identifier: GPL-2.0-only
"""Names the contents of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

LENGTH = 16
"""Digits of a digest."""


def digest(*paths: Path) -> str:
    """Return a digest of the contents of files, of several together.

    Raises:
        OSError: one cannot be read.
    """
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:LENGTH]
