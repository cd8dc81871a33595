# SPDX-License-Identifier: GPL-2.0-only
"""Data of the tracers, and their common interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field

_WRAPPED = "stock_"
"""Prefix that nodrop's modules give to the driver's functions that they wrap."""


@dataclass(frozen=True)
class Target:
    """The device to trace.

    Attributes:
        name: its name in its network namespace.
        ifindex: its ifindex there.
        netns: inode of the namespace.
    """

    name: str
    ifindex: int
    netns: int


@dataclass(frozen=True)
class Site:
    """A location in the kernel that freed packets, and the reason.

    Attributes:
        where: ``function+0x12``, or an address without a symbol.
        module: the function's module; "": the kernel itself, or unknown.
        reason: the kernel's name of the drop reason; "" before Linux 5.17.
    """

    where: str
    module: str
    reason: str

    @property
    def function(self) -> str:
        """The function's name in the kernel's source, without offset, suffix or nodrop's prefix."""
        return self.where.partition("+")[0].partition(".")[0].removeprefix(_WRAPPED)


@dataclass
class Counted:
    """The counts of a tracer.

    Attributes:
        packets: number of packets at each site.
        unseen: number of events that it could not read.
    """

    packets: Counter[Site] = field(default_factory=Counter)
    unseen: int = 0


class Tracer(ABC):
    """A counter of drops; leaves nothing in the kernel after :meth:`close`.

    Attributes:
        name: name of the tracer in JSON.
        device_known: whether only the device's packets are counted, instead of those of all TUN,
            TAP and vhost-net devices.
    """

    name: str
    device_known: bool

    @abstractmethod
    def start(self) -> None:
        """Start counting; the caller calls :meth:`close` even after an error.

        Raises:
            NodropError: the kernel refuses.
        """

    def begin(self) -> None:
        """Reset the counts, if the tracer can."""
        return

    def poll(self) -> None:
        """Do periodic work; the caller calls it several times a second.

        Raises:
            NodropError: the tracer has ended.
        """
        return

    @abstractmethod
    def finish(self) -> Counted:
        """Stop, and return the counts."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; may be called more than once."""


_OURS = ("tun", "tap", "vhost", "macvtap", "ipvtap", "nodrop")


def of_virtual_links(site: Site) -> bool:
    """Return whether a site is in the drivers of TUN, TAP or vhost-net."""
    if site.module:
        return site.module.startswith(_OURS)
    return site.function.startswith(tuple(f"{name}_" for name in _OURS))
