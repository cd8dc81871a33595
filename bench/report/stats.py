# SPDX-License-Identifier: GPL-2.0-only
"""Medians with distribution-free confidence intervals; joins several numbers into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median and its confidence interval.

    Attributes:
        median: of the sample.
        low: lower end of the interval.
        high: upper end of the interval.
        n: size of the sample.
        confidence: probability that such an interval contains the true median. It is at least
            CONFIDENCE, except for samples of less than six: for those, no such interval exists,
            and low and high are their range.
    """

    median: float
    low: float
    high: float
    n: int
    confidence: float


def coverage(n: int, rank: int) -> float:
    """Return the probability that the median lies within the ``rank``-th of both ends.

    The number of values below the true median is binomial(n, 1/2) for any distribution. The
    interval from the rank-th smallest to the rank-th largest value misses the median only if
    fewer than ``rank`` values lie on one side.
    """
    outside: int = sum(math.comb(n, k) for k in range(rank))
    return 1.0 - 2.0 * outside / float(2**n)


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median with the narrowest symmetric order-statistic interval.

    Raises:
        ValueError: there are no values.
    """
    ordered = sorted(values)
    n = len(ordered)
    middle = median(ordered)
    rank = 1
    while rank + 1 <= n // 2 and coverage(n, rank + 1) >= confidence:
        rank += 1
    return Interval(
        median=middle,
        low=ordered[rank - 1],
        high=ordered[n - rank],
        n=n,
        confidence=round(max(coverage(n, rank), 0.0), 4),
    )


def join(values: Sequence[float], how: str) -> float:
    """Combine numbers by ``sum``, ``mean`` or ``geometric mean`` (0 if one of them is 0)."""
    if how == "geometric mean":
        return geometric_mean(values) if all(values) else 0.0
    return math.fsum(values) / (len(values) if how == "mean" else 1)
