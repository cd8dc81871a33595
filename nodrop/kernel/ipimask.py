# SPDX-License-Identifier: GPL-2.0-only
"""Builds what spares User-Mode Linux two system calls a lock (ipimask.c says how)."""

from __future__ import annotations

from pathlib import Path

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.kernel import cache

SOURCE = Path(__file__).with_name("ipimask.c")
TIMEOUT_S = 60.0

_FLAGS = ("-std=gnu2x", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE")
_SHARED = ("-shared", "-fPIC", "-ftls-model=initial-exec")


def ensure_ipimask(tools: str) -> Path:
    """Return the library to preload, built when the cache has none.

    Args:
        tools: names the compiler that builds it.

    Raises:
        NodropError: it could not be built.
    """
    text = SOURCE.read_text(encoding="utf-8")

    def build(temporary: Path, _final: Path) -> None:
        library = temporary / "ipimask.so"
        result = proc.run(
            ["gcc", *_FLAGS, *_SHARED, "-o", str(library), str(SOURCE)], timeout=TIMEOUT_S
        )
        if result.status != 0:
            raise NodropError(f"{SOURCE.name} failed to build.", result.output)

    key = cache.digest(text, _FLAGS, _SHARED, tools)
    return cache.Cache("preload", keep=4).get(key, build) / "ipimask.so"
