# SPDX-License-Identifier: GPL-2.0-only
"""What each class of traffic should get of a link, and what it got."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lab.guest.failure import GuestError


@dataclass(frozen=True)
class Arrival:
    """One packet that was read; times are CLOCK_MONOTONIC in ns."""

    sender: int
    sent_ns: int
    read_ns: int


def parse_log(text: str) -> list[Arrival]:
    """Parse what ``tun_reader --log`` wrote.

    Raises:
        GuestError: a line is no packet.
    """
    try:
        return [Arrival(*map(int, line.split())) for line in text.splitlines()]
    except (TypeError, ValueError) as error:
        raise GuestError("the reader's log has a line that is no packet") from error


def due(total: float, weights: Sequence[float], demands: Sequence[float]) -> list[float]:
    """Divide a total by weights; what a class does not ask for goes to the others.

    Args:
        total: what there is.
        weights: of the classes, > 0.
        demands: what each asks for, in the unit of the total; math.inf: all it can get.
    """
    result = [0.0] * len(weights)
    open_classes = set(range(len(weights)))
    left = total
    while open_classes:
        unit = left / sum(weights[index] for index in open_classes)
        modest = {index for index in open_classes if demands[index] <= unit * weights[index]}
        for index in modest or open_classes:
            result[index] = demands[index] if modest else unit * weights[index]
        if not modest:
            break
        left -= sum(demands[index] for index in modest)
        open_classes -= modest
    return result


def window(classes: Iterable[Sequence[Arrival]], lead: float) -> tuple[int, int]:
    """Return the time, from and to in ns, in which packets of all classes were sent.

    Args:
        lead: the share of it, at its beginning, that is left out: queues fill.

    Raises:
        GuestError: a class has no packets, or the classes did not send at the same time.
    """
    lists = list(classes)
    if not all(lists):
        raise GuestError("a class of traffic got nothing through")
    begin = max(min(one.sent_ns for one in arrivals) for arrivals in lists)
    end = min(max(one.sent_ns for one in arrivals) for arrivals in lists)
    if begin >= end:
        raise GuestError("the classes of traffic did not send at the same time")
    return begin + round(lead * (end - begin)), end


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed; 0: no values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
