# SPDX-License-Identifier: GPL-2.0-only
"""Samples of the machine at intervals, with the rates between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from nodrop.host.build import build
from nodrop.host.model import Host
from nodrop.host.read import read
from nodrop.top.rates import Meter, Row

FIRST_S = 1.0
"""Longest time until the second sample, without which there are no rates."""


@dataclass(frozen=True)
class Look:
    """A sample.

    Attributes:
        time_s: seconds since the epoch.
        host: the machine.
        rows: a row for each device; without rates in the first sample.
    """

    time_s: float
    host: Host
    rows: list[Row]


class Looks:
    """A source of samples of the machine.

    Args:
        where: a network namespace: name, PID or file; None: the caller's own.
        everywhere: read all namespaces.
    """

    def __init__(self, where: str | None = None, *, everywhere: bool = False) -> None:
        self._where = where
        self._everywhere = everywhere
        self._meter = Meter()

    def look(self) -> Look:
        """Return a sample.

        Raises:
            NodropError: the namespace does not exist (any more) or cannot be entered, or iproute2
                is missing.
        """
        raw = read(self._where, everywhere=self._everywhere)
        host = build(raw)
        times = {space.inode: space.time_s for space in raw.namespaces}
        return Look(time.time(), host, self._meter.rows(host.devices, times))

    def every(self, interval_s: float, count: int | None) -> Iterator[Look]:
        """Yield samples at intervals, after the first one was taken by :meth:`look`.

        Args:
            interval_s: time between two samples.
            count: number of samples; None: without end.
        """
        due = time.monotonic() + min(interval_s, FIRST_S)
        done = 0
        while count is None or done < count:
            time.sleep(max(due - time.monotonic(), 0.0))
            # If a sample took longer than the interval, skip the missed ones.
            due = max(due, time.monotonic()) + interval_s
            done += 1
            yield self.look()
