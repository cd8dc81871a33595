# SPDX-License-Identifier: GPL-2.0-only
"""A link's shares of each traffic class: due and actual."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from guestlib.failure import GuestError


@dataclass(frozen=True)
class Arrival:
    """One received packet; times are CLOCK_MONOTONIC in ns."""

    sender: int
    sent_ns: int
    read_ns: int


def parse_log(text: str) -> list[Arrival]:
    """Parse the log of ``tun_reader --log``.

    Raises:
        GuestError: a line has another form.
    """
    try:
        return [Arrival(*map(int, line.split())) for line in text.splitlines()]
    except (TypeError, ValueError) as error:
        raise GuestError("cannot parse the reader's log") from error


def due(total: float, weights: Sequence[float], demands: Sequence[float]) -> list[float]:
    """Divide a total by weights; what a class does not demand is divided among the others.

    Args:
        total: to divide.
        weights: of the classes, > 0.
        demands: of the classes, in the unit of the total; math.inf: unlimited.
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
    """Return start and end, in ns, of the time in which all classes sent.

    Args:
        lead: share of that time to skip at its start, while queues fill.

    Raises:
        GuestError: a class has no packets, or the classes did not send at the same time.
    """
    lists = list(classes)
    if not all(lists):
        raise GuestError("no packet of a traffic class arrived")
    begin = max(min(one.sent_ns for one in arrivals) for arrivals in lists)
    end = min(max(one.sent_ns for one in arrivals) for arrivals in lists)
    if begin >= end:
        raise GuestError("the traffic classes did not send at the same time")
    return begin + round(lead * (end - begin)), end


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
