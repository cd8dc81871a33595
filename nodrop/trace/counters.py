# SPDX-License-Identifier: GPL-2.0-only
"""A device's own counters, to be compared with the traced drops."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nodrop.errors import NodropError
from nodrop.host import build, ethtool, netns
from nodrop.host.model import by_cause
from nodrop.host.read import tool
from nodrop.trace.tracer import Target

_NET = Path("/sys/class/net")


@dataclass(frozen=True)
class Counters:
    """A device's counters, since it was created or between two readings.

    Attributes:
        ifindex, netns: identify the device.
        tx_dropped, rx_dropped: the device's drops, packets.
        qdisc: kind of the root qdisc.
        qdisc_drops: packets that it dropped.
        qdisc_over_limit: those that exceeded its limit; None: not reported.
        driver: the driver's counters, by name.
    """

    ifindex: int
    netns: int
    tx_dropped: int
    rx_dropped: int
    qdisc: str
    qdisc_drops: int
    qdisc_over_limit: int | None
    driver: dict[str, int] = field(default_factory=dict)

    def target(self, name: str) -> Target:
        """Return the device for a tracer."""
        return Target(name, self.ifindex, self.netns)

    def since(self, before: Counters) -> Counters | None:
        """Return the differences; None: it is another device, possibly of the same name."""
        if (self.ifindex, self.netns) != (before.ifindex, before.netns):
            return None
        same = self.qdisc == before.qdisc and self.qdisc_drops >= before.qdisc_drops
        limit, old = self.qdisc_over_limit, before.qdisc_over_limit
        return Counters(
            ifindex=self.ifindex,
            netns=self.netns,
            tx_dropped=self.tx_dropped - before.tx_dropped,
            rx_dropped=self.rx_dropped - before.rx_dropped,
            qdisc=self.qdisc,
            # A new qdisc starts at 0.
            qdisc_drops=self.qdisc_drops - (before.qdisc_drops if same else 0),
            qdisc_over_limit=limit - old
            if same and limit is not None and old is not None
            else limit,
            driver={
                name: value - before.driver.get(name, 0)
                for name, value in self.driver.items()
                if value >= before.driver.get(name, 0)
            },
        )

    def nodrop(self, name: str) -> int | None:
        """Return the sum of one of nodrop's counters over all queues; None: not reported."""
        return self._sums.get(name)

    @property
    def drops_by_cause(self) -> dict[str, int]:
        """nodrop's own drops, by cause."""
        return by_cause(self._sums)

    @property
    def _sums(self) -> Counter[str]:
        sums: Counter[str] = Counter()
        for key, value in self.driver.items():
            if place := build.place(key):
                sums[place[1]] += value
        return sums


def read(name: str, where: str | None = None) -> Counters:
    """Read a device's counters.

    Args:
        where: its network namespace; None: the caller's.

    Raises:
        NodropError: there is no such device or namespace, or a tool is missing.
    """
    try:
        return Counters(**netns.run_inside(where, partial(_read, name)))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
            place = f" in the network namespace {where}" if where else ""
            raise NodropError(
                f"There is no device {name}{place}.", "'nodrop status' lists the virtual ones."
            ) from error
        raise NodropError(f"{name} cannot be read: {error.strerror}.") from error


def _read(name: str) -> dict[str, Any]:
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
    files = _NET / name
    kind, drops, limit = root_qdisc(
        [one for one in tool("tc", "-s", "qdisc") if one.get("dev") == name]
    )
    driver: dict[str, int] = {}
    with suppress(OSError):
        driver = ethtool.stats(name)
    # Read these last: the tracer starts right afterwards, and both must cover the same time.
    return asdict(
        Counters(
            ifindex=int((files / "ifindex").read_text()),
            netns=netns.own(),
            tx_dropped=int((files / "statistics/tx_dropped").read_text()),
            rx_dropped=int((files / "statistics/rx_dropped").read_text()),
            qdisc=kind,
            qdisc_drops=drops,
            qdisc_over_limit=limit,
            driver=driver,
        )
    )


def root_qdisc(qdiscs: Sequence[Mapping[str, Any]]) -> tuple[str, int, int | None]:
    """Return kind, drops and drops over the limit of the root of a device's qdiscs."""
    root = next((one for one in qdiscs if one.get("root")), {"kind": "noqueue"})
    # Of its children's counters, mq only adds up the drops.
    limits = [int(one["drop_overlimit"]) for one in qdiscs if "drop_overlimit" in one]
    return str(root["kind"]), int(root.get("drops", 0)), sum(limits) if limits else None
