# SPDX-License-Identifier: GPL-2.0-only
"""Two samples of a machine, and the rates between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nodrop.doctor.pair import Pair, taken
from nodrop.host.model import Device, Driver, Host
from nodrop.host.raw import Holder
from nodrop.host.system import System
from nodrop.host.threads import Thread

_NOMINAL_MBITS = 100.0
_IDLE_BYTES_S = 10_000.0


@dataclass(frozen=True)
class Link:
    """A device in both samples.

    Attributes:
        before, now: the device in the first and in the second sample.
        seconds: time between the samples.
    """

    before: Device
    now: Device
    seconds: float

    @property
    def dropped(self) -> int:
        """Packets that the driver dropped between the samples."""
        return max(0, self.now.tx_dropped - self.before.tx_dropped)

    @property
    def delivered(self) -> int:
        """Packets that reached the reader between the samples."""
        return max(0, self.now.tx_packets - self.before.tx_packets)

    @property
    def qdisc_drops(self) -> int:
        """Packets that the qdisc dropped between the samples."""
        return max(0, self.now.qdisc.drops - self.before.qdisc.drops)

    def counted(self, name: str) -> int:
        """Return the increase of one of nodrop's counters; 0 if the driver does not have it."""
        return max(0, (self.now.counter(name) or 0) - (self.before.counter(name) or 0))

    def rate(self, packets: int) -> str:
        """Return a number of packets as a rate: ``120/s``."""
        return f"{packets / self.seconds:,.0f}/s"

    @property
    def rates(self) -> dict[str, float]:
        """Rates to the reader, or through the tunnel, per second; and the share that dropped."""
        return {
            "delivered_packets_per_s": self.delivered / self.seconds,
            "delivered_bytes_per_s": self.bytes_s,
            "dropped_packets_per_s": self.dropped / self.seconds,
            "dropped_share": self.dropped / max(self.dropped + self.delivered, 1),
        }

    @property
    def bytes_s(self) -> float:
        """Bytes per second that reached the reader."""
        return max(0, self.now.tx_bytes - self.before.tx_bytes) / self.seconds

    @property
    def packet_bytes(self) -> float:
        """Mean size of a packet: between the samples, or since its creation, or the MTU."""
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
        """Return how long the last of ``packets`` waits at the rate of :meth:`delay`."""
        size = self.packet_bytes if self._moves else float(self.now.mtu)
        return f"{packets * size * 8 / self._mbits / 1e3:,.0f} ms"

    def delay(self, packets: int) -> str:
        """Return the wait with the rate, 100 Mbit/s if idle: ``240 ms at 50 Mbit/s``."""
        now = "the present " if self._moves else ""
        return f"{self.wait(packets)} at {now}{self._mbits:,.4g} Mbit/s"

    @cached_property
    def queues(self) -> tuple[Pair, ...]:
        """The queues of nodrop's driver that are in both samples."""
        if self.now.driver not in (Driver.NODROP, Driver.LIVE):
            return ()
        was = {one.index: one for one in self.before.queue}
        # The device counts for all its queues.
        one_only = len(self.now.queue) == 1 or not self.delivered
        delivered = self.delivered if one_only else None
        return tuple(
            Pair(
                before=was[one.index],
                now=one,
                taken=taken(was[one.index], one, delivered),
                qdisc_before=was[one.index].qdisc or self.before.qdisc,
                qdisc=one.qdisc or self.now.qdisc,
                seconds=self.seconds,
            )
            for one in self.now.queue
            if one.index in was
        )

    @property
    def backpressure(self) -> bool:
        """Whether nodrop's flow control is on."""
        return self.now.driver in (Driver.NODROP, Driver.LIVE) and self.now.enabled


@dataclass(frozen=True)
class Load:
    """The CPU time of a thread between the samples.

    Attributes:
        thread: the thread, as in the second sample.
        run: share of the time that it ran, 0 to 1.
        wait: share of the time that it was runnable and did not run, 0 to 1.
    """

    thread: Thread
    run: float
    wait: float

    @property
    def label(self) -> str:
        """The thread for messages: ``openvpn(1234)``."""
        return f"{self.thread.name}({self.thread.tid})"


@dataclass(frozen=True)
class Sample:
    """A machine at one time, and the threads of its devices' readers."""

    host: Host
    threads: Sequence[Thread]


@dataclass(frozen=True)
class Look:
    """Two samples.

    Attributes:
        before, after: the samples.
        system: installed kernels and modules.
        ready: tid -> share of the polls in between at which the thread was runnable or running;
            empty: not polled.
        only: names or labels of the selected devices; empty: all.
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
        """The machine in the second sample."""
        return self.after.host

    @property
    def seconds(self) -> float:
        """Time between the samples."""
        return max(self.after.host.time_s - self.before.host.time_s, 1e-3)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The selected devices that are in both samples."""
        later = {_key(device): device for device in self.host.devices}
        return tuple(
            Link(device, later[_key(device)], self.seconds)
            for device in self._selected()
            if _key(device) in later
        )

    @cached_property
    def gone(self) -> tuple[str, ...]:
        """Labels of the selected devices that are in the first sample only."""
        later = {_key(device) for device in self.host.devices}
        return tuple(device.label for device in self._selected() if _key(device) not in later)

    def _selected(self) -> list[Device]:
        found = self.before.host.devices
        return [one for one in found if not self.only or {one.name, one.label} & self.only]

    def loads(self, device: Device) -> list[Load]:
        """Return the loads of the threads of a device's readers, the busiest first."""
        pids = {owner.pid for owner in device.owners}
        found = [load for pid in pids for load in self._loads.get(pid, ())]
        return sorted(found, key=lambda load: (-load.run, load.thread.pid, load.thread.tid))

    @cached_property
    def _loads(self) -> dict[int, list[Load]]:
        """The loads of all threads, by process."""
        before = {(thread.pid, thread.tid): thread for thread in self.before.threads}
        found: dict[int, list[Load]] = {}
        for thread in self.after.threads:
            if earlier := before.get((thread.pid, thread.tid)):
                found.setdefault(thread.pid, []).append(self._load(earlier, thread))
        return found

    def _load(self, before: Thread, after: Thread) -> Load:
        run = min(max(after.run_s - before.run_s, 0.0) / self.seconds, 1.0)
        wait = 0.0
        if before.wait_s is not None and after.wait_s is not None:
            wait = (after.wait_s - before.wait_s) / self.seconds
        # The kernel counts a wait when it ends. Polling finds a thread that never runs.
        polled = self.ready.get(after.tid, 0.0) - run
        if polled >= _SURE:
            wait = max(wait, polled)
        return Load(after, run, min(max(wait, 0.0), 1.0))


_SURE = 0.5
"""A share that a few polls do not show by chance."""


def _key(device: Device) -> tuple[int, int, str]:
    return device.netns_inode, device.ifindex, device.name
