# SPDX-License-Identifier: GPL-2.0-only
"""What the tracers count, and what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field

_WRAPPED = "stock_"
"""What nodrop's modules call the driver's functions that they wrap."""


@dataclass(frozen=True)
class Target:
    """The device in question.

    Attributes:
        name: what it is called in its network namespace.
        ifindex: its number there.
        netns: inode of the namespace.
    """

    name: str
    ifindex: int
    netns: int


@dataclass(frozen=True)
class Site:
    """A place in the kernel that freed packets, and the reason it gave.

    Attributes:
        where: ``function+0x12``, or an address where there is no name for it.
        module: that the function is in; "": the kernel itself, or not known.
        reason: the kernel's name for it; "" in kernels that give none (before 5.17).
    """

    where: str
    module: str
    reason: str

    @property
    def function(self) -> str:
        """Its name in the kernel's source: no offset, nothing that a compiler or nodrop adds."""
        return self.where.partition("+")[0].partition(".")[0].removeprefix(_WRAPPED)


@dataclass
class Counted:
    """What a tracer saw.

    Attributes:
        packets: how many at each place.
        unseen: events that it could not count.
    """

    packets: Counter[Site] = field(default_factory=Counter)
    unseen: int = 0


class Tracer(ABC):
    """Counts in the kernel, and leaves nothing behind once it is closed.

    Attributes:
        name: what it works with.
        device_known: whether only packets of the device are counted. Otherwise those of
            all devices of TUN, TAP and vhost-net are.
    """

    name: str
    device_known: bool

    @abstractmethod
    def start(self) -> None:
        """Begin to count; :meth:`close` is to be called however that ends.

        Raises:
            NodropError: the kernel refuses.
        """

    def begin(self) -> None:
        """Forget what was counted so far, where that can be done at once."""
        return

    def poll(self) -> None:
        """Called several times a second meanwhile.

        Raises:
            NodropError: it has ended by itself.
        """
        return

    @abstractmethod
    def finish(self) -> Counted:
        """Stop, and return what was counted."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything; may be called more than once."""


_OURS = ("tun", "tap", "vhost", "macvtap", "ipvtap", "nodrop")


def of_virtual_links(site: Site) -> bool:
    """Whether a place is in the drivers of TUN, TAP or vhost-net."""
    if site.module:
        return site.module.startswith(_OURS)
    return site.function.startswith(tuple(f"{name}_" for name in _OURS))
