# SPDX-License-Identifier: GPL-2.0-only
"""One look at the machine after another, with the rates since the one before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from nodrop.host.build import build
from nodrop.host.model import Host
from nodrop.host.read import read
from nodrop.top.rates import Meter, Row

FIRST_S = 1.0
"""Nothing can be said before the second look, so that one comes soon."""


@dataclass(frozen=True)
class Look:
    """What is known at one time.

    Attributes:
        time_s: since the epoch.
        host: the machine.
        rows: a row for each device; the first look has no rates.
    """

    time_s: float
    host: Host
    rows: list[Row]


class Looks:
    """Looks at a machine again and again.

    Args:
        where: a network namespace: name, pid, or file; None: the one that this runs in.
        everywhere: all that there are.
    """

    def __init__(self, where: str | None = None, *, everywhere: bool = False) -> None:
        self._where = where
        self._everywhere = everywhere
        self._meter = Meter()

    def look(self) -> Look:
        """Look now.

        Raises:
            NodropError: the one namespace is not there (any more), may not be entered, or
                iproute2 is missing.
        """
        raw = read(self._where, everywhere=self._everywhere)
        host = build(raw)
        times = {space.inode: space.time_s for space in raw.namespaces}
        return Look(time.time(), host, self._meter.rows(host.devices, times))

    def every(self, interval_s: float, count: int | None) -> Iterator[Look]:
        """Look again and again, and sleep in between; the first look is not among them.

        Args:
            interval_s: between two looks.
            count: how many; None: without end.
        """
        due = time.monotonic() + min(interval_s, FIRST_S)
        done = 0
        while count is None or done < count:
            time.sleep(max(due - time.monotonic(), 0.0))
            # A look that took longer than the interval leaves out some.
            due = max(due, time.monotonic()) + interval_s
            done += 1
            yield self.look()
