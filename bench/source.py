# SPDX-License-Identifier: GPL-2.0-only
"""``python -m bench.source [TREE]``: print the digest by which results name the measured source.

It depends on the sources' names and contents only, so a measured tree is recognised without its
git history.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.kernel.artifacts import REPOSITORY

TREES = ("kmod", "guestlib/traffic")
"""Drivers and traffic programs."""
GUEST = ("bench/guest", "bench/scenarios", "guestlib")
"""The code and the parameters that set them up and measure them."""
LENGTH = 16
"""Hexadecimal digits of a digest."""

_QUOTED_OR_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*""", re.DOTALL
)


def without_comments(text: str) -> str:
    """Return C code without comments, blank lines and trailing spaces."""
    code = _QUOTED_OR_COMMENT.sub(lambda match: match[1] or " ", text)
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def digest(repository: Path = REPOSITORY, trees: Sequence[str] = TREES) -> str:
    """Return the digest of the trees' C, Python and TOML files; empty when a tree is missing.

    Tests do not count, and neither do comments in C.
    """
    total = hashlib.sha256()
    for tree in trees:
        if not (repository / tree).is_dir():
            return ""
        for path in sorted((repository / tree).rglob("*")):
            name = path.relative_to(repository)
            if path.suffix in (".c", ".h", ".py", ".toml") and "test" not in name.parts:
                content = path.read_bytes()
                if path.suffix in (".c", ".h"):
                    content = without_comments(content.decode()).encode()
                total.update(f"{name}\0".encode())
                total.update(hashlib.sha256(content).digest())
    return total.hexdigest()[:LENGTH]


if __name__ == "__main__":
    print(digest(Path(sys.argv[1]) if sys.argv[1:] else REPOSITORY))
