# SPDX-License-Identifier: GPL-2.0-only
"""Tests in guests: the shared guests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FLAVOUR
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from proof import selftests

COMPAT = Path(__file__).parents[1] / "compat"
PROGRAMS = [
    path
    for path in (*selftests.find_selftests(selftests.PROGRAMS), *selftests.find_selftests(COMPAT))
    # tests/series runs series.py, which tests other drivers.
    if (FLAVOUR == "builtin" or path.name != "tun_beside.py") and path.name != "series.py"
]
GUESTS = 6
_CASE = re.compile(r"\btest_case\[([\w.]+)::")


def guest_of(name: str) -> int:
    return [path.name for path in PROGRAMS].index(name) % GUESTS


class GuestScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Schedule tests one by one, but programs of a guest together, in one process."""

    def _split_scope(self, nodeid: str) -> str:
        case = _CASE.search(nodeid)
        return f"guest {guest_of(case[1])}" if case else nodeid


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", default="1", metavar="N,...", help="of the sweep; or: today")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GuestScheduling:
    return GuestScheduling(config, log)


@pytest.fixture
def time_passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that advances the clock by an hour, to make guests time out."""
    now, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed[0])

    def pass_by() -> None:
        passed[0] += 3600.0

    return pass_by
