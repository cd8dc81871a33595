# SPDX-License-Identifier: GPL-2.0-only
"""Two samples of a machine, side by side: what changed, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nodrop.host.model import Device, Driver, Host
from nodrop.host.raw import Holder
from nodrop.host.system import System
from nodrop.host.threads import Thread

_NOMINAL_MBITS = 100.0
_IDLE_BYTES_S = 10_000.0


@dataclass(frozen=True)
class Link:
    """A device that was there both times.

    Attributes:
        before, now: the device.
        seconds: between them.
    """

    before: Device
    now: Device
    seconds: float

    @property
    def dropped(self) -> int:
        """Packets that were lost on the way to the reader meanwhile."""
        return max(0, self.now.tx_dropped - self.before.tx_dropped)

    @property
    def delivered(self) -> int:
        """Packets that reached the reader meanwhile."""
        return max(0, self.now.tx_packets - self.before.tx_packets)

    @property
    def qdisc_drops(self) -> int:
        """Packets that the qdisc dropped meanwhile."""
        return max(0, self.now.qdisc.drops - self.before.qdisc.drops)

    def counted(self, name: str) -> int:
        """How much one of nodrop's counters grew meanwhile; 0 when there is none."""
        return max(0, (self.now.counter(name) or 0) - (self.before.counter(name) or 0))

    def rate(self, packets: int) -> str:
        """Return packets in that time as people read it: ``120/s``."""
        return f"{packets / self.seconds:,.0f}/s"

    @property
    def rates(self) -> dict[str, float]:
        """What went to the reader, or through the tunnel, a second."""
        return {
            "delivered_packets_per_s": self.delivered / self.seconds,
            "delivered_bytes_per_s": self.bytes_s,
            "dropped_packets_per_s": self.dropped / self.seconds,
            "dropped_share": self.dropped / max(self.dropped + self.delivered, 1),
        }

    @property
    def bytes_s(self) -> float:
        """Bytes a second that reached the reader."""
        return max(0, self.now.tx_bytes - self.before.tx_bytes) / self.seconds

    @property
    def packet_bytes(self) -> float:
        """Mean size of a packet: now, or since the device was made, or the MTU."""
        if self.delivered:
            size = (self.now.tx_bytes - self.before.tx_bytes) / self.delivered
        elif self.now.tx_packets:
            size = self.now.tx_bytes / self.now.tx_packets
        else:
            size = self.now.mtu
        return max(size, 64.0)

    @property
    def _moves(self) -> bool:
        return self.bytes_s >= _IDLE_BYTES_S

    @property
    def _mbits(self) -> float:
        return self.bytes_s * 8 / 1e6 if self._moves else _NOMINAL_MBITS

    def wait(self, packets: int) -> str:
        """Return how long the last of so many packets waits at the rate of :meth:`delay`."""
        size = self.packet_bytes if self._moves else float(self.now.mtu)
        return f"{packets * size * 8 / self._mbits / 1e3:,.0f} ms"

    def delay(self, packets: int) -> str:
        """Return that with the rate, or 100 Mbit/s when idle: ``240 ms at 50 Mbit/s``."""
        now = "the present " if self._moves else ""
        return f"{self.wait(packets)} at {now}{self._mbits:,.4g} Mbit/s"

    @property
    def holds(self) -> bool:
        """Whether nodrop's protocol is at work on it."""
        return self.now.driver in (Driver.NODROP, Driver.LIVE) and self.now.enabled


@dataclass(frozen=True)
class Load:
    """What a thread did meanwhile.

    Attributes:
        thread: which, as it was at the end.
        run: the share of the time that it ran, 0 to 1.
        wait: the share that it was ready and did not run.
    """

    thread: Thread
    run: float
    wait: float

    @property
    def label(self) -> str:
        """For people: ``openvpn(1234)``."""
        return f"{self.thread.name}({self.thread.tid})"


@dataclass(frozen=True)
class Sample:
    """A machine at one time, with the threads of those who read its devices."""

    host: Host
    threads: Sequence[Thread]


@dataclass(frozen=True)
class Look:
    """Two samples.

    Attributes:
        before, after: the samples.
        system: what is installed.
        ready: tid -> the share of peeks in between at which the thread was ready or ran; empty:
            nobody peeked.
        only: the devices that are asked for, by name or label; none: all.
        host_holders: processes that have devices open, in any namespace.
    """

    before: Sample
    after: Sample
    system: System
    ready: dict[int, float] = field(default_factory=dict)
    only: frozenset[str] = frozenset()
    host_holders: Sequence[Holder] = ()

    @property
    def host(self) -> Host:
        """The machine at the end."""
        return self.after.host

    @property
    def seconds(self) -> float:
        """Between the samples."""
        return max(self.after.host.time_s - self.before.host.time_s, 1e-3)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The devices that are asked for and were there both times."""
        later = {_key(device): device for device in self.host.devices}
        return tuple(
            Link(device, later[_key(device)], self.seconds)
            for device in self._asked()
            if _key(device) in later
        )

    @cached_property
    def gone(self) -> tuple[str, ...]:
        """Labels of the devices that went away in between."""
        later = {_key(device) for device in self.host.devices}
        return tuple(device.label for device in self._asked() if _key(device) not in later)

    def _asked(self) -> list[Device]:
        found = self.before.host.devices
        return [one for one in found if not self.only or {one.name, one.label} & self.only]

    def loads(self, device: Device) -> list[Load]:
        """Return what the threads of a device's readers did; the busiest first."""
        pids = {owner.pid for owner in device.owners}
        found = [load for load in self._loads if load.thread.pid in pids]
        return sorted(found, key=lambda load: -load.run)

    @cached_property
    def _loads(self) -> list[Load]:
        before = {(thread.pid, thread.tid): thread for thread in self.before.threads}
        return [
            self._load(before[thread.pid, thread.tid], thread)
            for thread in self.after.threads
            if (thread.pid, thread.tid) in before
        ]

    def _load(self, before: Thread, after: Thread) -> Load:
        run = min(max(after.run_s - before.run_s, 0.0) / self.seconds, 1.0)
        wait = 0.0
        if before.wait_s is not None and after.wait_s is not None:
            wait = (after.wait_s - before.wait_s) / self.seconds
        # The kernel counts a wait when it is over. A thread that never runs is seen by peeking.
        peeked = self.ready.get(after.tid, 0.0) - run
        if peeked >= _SURE:
            wait = max(wait, peeked)
        return Load(after, run, min(max(wait, 0.0), 1.0))


_SURE = 0.5
"""A difference that some peeks do not show by chance."""


def _key(device: Device) -> tuple[int, int, str]:
    return device.netns_inode, device.ifindex, device.name
