# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.source [TREE]``: the digest that results name their source by.

It is of the contents alone: a tree that was measured can be told from others without its history.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.kernel.artifacts import REPOSITORY

TREES = ("kmod", "lab/traffic")
"""Drivers and traffic programs."""
GUEST = ("bench/guest", "bench/scenarios", "lab/guest")
"""What sets them up and measures them."""
LENGTH = 16
"""Digits of a digest."""


def digest(repository: Path = REPOSITORY, trees: Sequence[str] = TREES) -> str:
    """Return the digest of what is compiled, or runs; empty when a tree is missing.

    What tests, installs or caches leave does not count.
    """
    total = hashlib.sha256()
    for name in trees:
        if not (repository / name).is_dir():
            return ""
        for path in sorted((repository / name).rglob("*")):
            if path.suffix in (".c", ".h", ".py", ".toml") and "test" not in path.parts:
                total.update(f"{path.relative_to(repository)}\0".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:LENGTH]


if __name__ == "__main__":
    print(digest(Path(sys.argv[1]) if sys.argv[1:] else REPOSITORY))
