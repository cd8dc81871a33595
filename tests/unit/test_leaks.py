# SPDX-License-Identifier: GPL-2.0-only
"""What the fuzzer takes for leaked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodrop.guest import kmemleak, leaks


@pytest.mark.parametrize(("late", "wanted"), [(3, ""), (10**6, "more objects of skbuff_head")])
def test_memory_may_come_back_late(monkeypatch: pytest.MonkeyPatch, late: int, wanted: str) -> None:
    counts = iter([100, *[100 + leaks.OBJECTS + 1] * late, 100, 100])
    clock = iter(range(10**6))
    monkeypatch.setattr(leaks, "objects", lambda: {"skbuff_head_cache": next(counts)})
    monkeypatch.setattr(leaks, "slab_kb", lambda: 1)
    monkeypatch.setattr(leaks, "SHRINK", Path("/nowhere"))
    monkeypatch.setattr(kmemleak, "leaks", list)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    memory = leaks.Leaks()
    memory.round_ends()
    found = memory.end()
    assert wanted in found
    assert bool(found) == bool(wanted)
    assert memory.slab_kb == [1, 1]
