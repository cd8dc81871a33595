# SPDX-License-Identifier: GPL-2.0-only
"""One change that breaks the kernel code on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        name: what is broken.
        file: below kmod/.
        old: a text that occurs there once.
        new: what replaces it.
        program: the one in tests/selftests that must notice it.
        wider: more changes of the file, which harm nobody alone: they give a race time.
        row: the row of the sweep that must; no program and no row: any test may.
    """

    name: str
    file: str
    old: str
    new: str
    program: str = ""
    wider: tuple[tuple[str, str], ...] = ()
    row: str = ""
