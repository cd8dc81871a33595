# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import random

import pytest

from nodrop.report import stats


def test_interval_of_known_samples() -> None:
    """Ranks from the published tables of the sign test, two-sided 95 %."""
    for n, low, high in ((6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (25, 8, 18), (40, 14, 27)):
        values = [float(value) for value in range(1, n + 1)]
        random.Random(n).shuffle(values)
        found = stats.interval(values)
        assert (found.low, found.high, found.n) == (low, high, n)
        assert found.confidence >= stats.CONFIDENCE


def test_a_small_sample_tells_its_lower_confidence() -> None:
    for n, confidence in ((1, 0.0), (2, 0.5), (5, 0.9375)):
        found = stats.interval([float(value) for value in range(n)])
        assert (found.low, found.high, found.confidence) == (0, n - 1, confidence)


def test_join() -> None:
    assert stats.join([1, 4, 16], "geometric mean") == pytest.approx(4)
    assert stats.join([0, 5], "geometric mean") == 0
    assert stats.join([2, 8], "sum") == 10
    assert stats.join([0, 8], "mean") == pytest.approx(4)
