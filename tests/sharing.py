# SPDX-License-Identifier: GPL-2.0-only
"""Assigns test programs to shared guests; those of a guest need one process of pytest-xdist."""

from __future__ import annotations

import re
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from proof.selftests import find_selftests

TESTS = Path(__file__).parent
PROGRAMS = [*find_selftests(TESTS.parent / "proof/programs"), *find_selftests(TESTS / "compat")]
GUESTS = 6
_PROGRAM = re.compile(r"\btest_selftest\[(\w+)\]$")


def guest_of(name: str) -> int:
    """Return the number of a program's guest."""
    return [path.name for path in PROGRAMS].index(name) % GUESTS


class GuestScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Schedule tests one by one, but programs of a guest together."""

    def _split_scope(self, nodeid: str) -> str:
        program = _PROGRAM.search(nodeid)
        return f"guest {guest_of(program[1])}" if program else nodeid
