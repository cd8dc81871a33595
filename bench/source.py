# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.source [TREE]``: the digest that results name their source by.

It is of the contents alone: a tree that was measured can be told from others without its history.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lab.kernel.artifacts import REPOSITORY, content_hash

TREES = ("kmod", "lab/traffic")
"""What runs in the guest, drivers and programs."""
LENGTH = 16
"""Digits of a digest."""


def digest(repository: Path = REPOSITORY) -> str:
    """Return the digest of what is measured in a tree; empty when a part of it is missing."""
    trees = [repository / name for name in TREES]
    return content_hash(*trees)[:LENGTH] if all(tree.is_dir() for tree in trees) else ""


if __name__ == "__main__":
    print(digest(*map(Path, sys.argv[1:2])))
