# SPDX-License-Identifier: GPL-2.0-only
"""Two samples of a machine, and what changed between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nodrop.host import system as host_system
from nodrop.host.counters import Counters, Counts, by_cause, total, wait_ms
from nodrop.host.model import Device, Host, Qdisc, Queue
from nodrop.host.procfs import Holder, Thread, read_threads, ready_threads
from nodrop.host.read import Raw, build, read
from nodrop.host.sockets import Waiting, waiting
from nodrop.host.system import System

_NOMINAL_MBITS = 100.0
_IDLE_BYTES_S = 10_000.0
_SURE_S = 0.9
"""A time in which a reader that works takes packets, seconds."""
_SURE_SHARE = 0.5
"""A share that a few polls do not show by chance."""
_POLLS_S = 20.0
_THREADS_MAX = 256
"""Threads that are polled; more would take longer than the pause between two polls."""


@dataclass(frozen=True)
class QueueChange:
    """A queue in both samples.

    Attributes:
        counts: the increase of its counters; empty: it is a new queue.
        taken: packets that its reader took in between; None: unknown.
        qdisc_before, qdisc: what feeds it: its qdisc below mq, or the device's.
        sent: the increase of the qdisc's counters; empty: it is a new qdisc.
    """

    before: Queue
    now: Queue
    counts: Counts
    taken: int | None
    qdisc_before: Qdisc
    qdisc: Qdisc
    sent: Counts
    seconds: float

    @property
    def ring(self) -> int:
        """Packets in the ring now; 0 if the driver does not report them."""
        return self.now.ring_packets or 0

    @property
    def unread(self) -> bool:
        """Whether there were packets all the time, and the reader took none.

        A reader may pause between two reads, so only the stall guard is sure of a shorter time.
        """
        if self.taken != 0:
            return False
        if self.counts.get("guard_trips") or self.counts.get("drop_guard"):
            return True
        sure = self.seconds >= _SURE_S or bool(self.now.stalled_ms)
        return sure and self.ring >= (self.before.ring_packets or 0) > 0

    @property
    def trickles(self) -> bool:
        """Whether the reader took packets, and is stalled nevertheless."""
        return bool(self.taken) and bool(self.now.stalled_ms)

    @property
    def taken_s(self) -> float:
        """Packets per second that the reader took; 0 if that is not known."""
        return (self.taken or 0) / self.seconds

    @property
    def still(self) -> bool:
        """Whether packets waited in the ring, and nothing notified the reader."""
        return self.unread and not self.loses and not self.counts.get("guard_trips")

    @property
    def backs_up(self) -> bool:
        """Whether the reader took packets, and left some in the ring and in the qdisc."""
        queued = min(self.qdisc_before.queued_packets, self.qdisc.queued_packets)
        return bool(self.taken) and min(self.before.ring_packets or 0, self.ring, queued) > 0

    @property
    def reader_sets_pace(self) -> bool:
        """Whether packets leave the qdisc as fast as the reader takes them: it stops the queue."""
        limit = self.now.limit_packets or 0
        full = 0 < limit <= min(self.before.ring_packets or 0, self.ring)
        stopped = full or self.counts.get("stops", 0) > 0
        return self.backs_up and stopped and self.sent.get("packets", 0) > 0

    @property
    def loses(self) -> bool:
        """Whether senders lose packets or time by it now."""
        blocked = self.qdisc.queued_packets > 0 and self.sent.get("packets") == 0
        grows = self.ring > (self.before.ring_packets or 0)
        return any(by_cause(self.counts).values()) or blocked or grows

    @property
    def stalled_s(self) -> float:
        """For how long the reader has been stalled, s; 0: it is not. It may take packets."""
        return (self.now.stalled_ms or 0) / 1e3

    @property
    def label(self) -> str:
        """The queue for messages: ``queue 1 for at least 1.0 s (stalled for 12.3 s)``."""
        stalled = f" (stalled for {self.stalled_s:,.1f} s)" if self.stalled_s else ""
        unread = "" if self.taken else f" for at least {self.seconds:,.1f} s"
        return f"queue {self.now.index}{unread}{stalled}"

    @property
    def idle_times(self) -> dict[str, float]:
        """For findings about a reader that took nothing: for how long, and since when, s."""
        index = self.now.index
        stalled = {f"queue{index}_stalled_s": self.stalled_s} if self.stalled_s else {}
        return {f"queue{index}_unread_s": self.seconds, **stalled}

    @property
    def measured(self) -> bool:
        """Whether the driver reports what is in the ring and left it, and the qdisc is the same."""
        counted = self.now.ring_packets is not None and self.taken is not None
        return counted and bool(self.sent)

    @property
    def ring_ms(self) -> float | None:
        """How long the last packet of the ring waits for the reader, ms; None: none leaves.

        The driver's pace leaves out the time in which a reader does not look, such as that of a
        timer. If packets waited in both samples, what it took between them counts.
        """
        pace_s = (self.now.pace_ns or 0) / 1e9
        if not pace_s or (self.before.ring_packets and self.ring):
            pace_s = max(pace_s, self.seconds / (self.taken or 1))
        return wait_ms(self.ring, 1 / pace_s if self.taken else None)

    @property
    def qdisc_ms(self) -> float | None:
        """How long the last packet of the qdisc waits, ms; None: none leaves."""
        queued = self.qdisc.queued_bytes if self.qdisc.queued_packets else 0
        return wait_ms(queued, self.sent.get("bytes", 0) / self.seconds)


@dataclass(frozen=True)
class DeviceChange:
    """A device in both samples."""

    before: Device
    now: Device
    seconds: float

    @cached_property
    def increase(self) -> Counters:
        return self.now.counters.since(self.before.counters)

    @cached_property
    def totals(self) -> dict[str, int]:
        """The increase of nodrop's counters, over all queues."""
        return total(self.increase.queues.values())

    @property
    def dropped(self) -> int:
        """Packets that the driver dropped between the samples."""
        return self.increase.link.get("tx_dropped", 0)

    @property
    def delivered(self) -> int:
        """Packets that reached the reader between the samples."""
        return self.increase.link.get("tx_packets", 0)

    @property
    def qdisc_drops(self) -> int:
        return self.increase.qdisc.get("drops", 0)

    def mbit_s(self, size: int) -> float:
        """Return a number of bytes as a rate, Mbit/s."""
        return size * 8 / self.seconds / 1e6

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
        return self.increase.link.get("tx_bytes", 0) / self.seconds

    @property
    def packet_bytes(self) -> float:
        """Mean size of a packet: between the samples, or since its creation, or the MTU."""
        return self.now.packet_bytes(self.delivered, self.increase.link.get("tx_bytes"))

    @property
    def _moves(self) -> bool:
        """Whether the reader gets more than a few packets."""
        return self.bytes_s >= _IDLE_BYTES_S

    @property
    def _mbits(self) -> float:
        return self.bytes_s * 8 / 1e6 if self._moves else _NOMINAL_MBITS

    def wait_ms(self, packets: int) -> float:
        """Return how long the last of ``packets`` waits at the rate of :meth:`delay`, ms."""
        size = self.packet_bytes if self._moves else float(self.now.mtu)
        return packets * size * 8 / self._mbits / 1e3

    def wait(self, packets: int) -> str:
        return f"{self.wait_ms(packets):,.0f} ms"

    def delay(self, packets: int) -> str:
        """Return the wait with the rate, 100 Mbit/s if idle: ``240 ms at 50 Mbit/s``."""
        now = "the present " if self._moves else ""
        return f"{self.wait(packets)} at {now}{self._mbits:,.4g} Mbit/s"

    @cached_property
    def queues(self) -> tuple[QueueChange, ...]:
        """The queues of nodrop's driver that are in both samples."""
        if not self.now.ours:
            return ()
        earlier = {queue.index: queue for queue in self.before.queue}
        return tuple(
            self._queue(earlier[queue.index], queue)
            for queue in self.now.queue
            if queue.index in earlier
        )

    def _queue(self, before: Queue, now: Queue) -> QueueChange:
        counts = self.increase.queues.get(now.index, {})
        if "taken" in now.counters and "taken" in before.counters:
            taken = counts.get("taken")
        else:
            # The device counts for all its queues.
            alone = len(self.now.queue) == 1 or not self.delivered
            taken = self.delivered if alone else None
        return QueueChange(
            before=before,
            now=now,
            counts=counts,
            taken=taken,
            qdisc_before=before.qdisc or self.before.qdisc,
            qdisc=now.qdisc or self.now.qdisc,
            sent=self.increase.bands.get(now.index, {}) if now.qdisc else self.increase.qdisc,
            seconds=self.seconds,
        )

    @property
    def backpressure(self) -> bool:
        return self.now.ours and self.now.enabled


@dataclass(frozen=True)
class ThreadLoad:
    """The CPU time of a thread between the samples.

    Attributes:
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
class Observation:
    """Two samples.

    Attributes:
        before, host: the machine in the first and in the second sample.
        system: installed kernels and modules.
        ready: tid -> share of the polls in between at which the thread was runnable or running;
            empty: not polled.
        only: names and patterns of the selected devices; empty: all.
        host_holders: processes that have the drivers' device nodes open, in any namespace.
        sockets_before, sockets: pid -> what waits in its sockets, of the processes that have a
            device open and could be asked.
    """

    before: Host
    host: Host
    threads_before: Sequence[Thread]
    threads: Sequence[Thread]
    system: System
    ready: dict[int, float]
    only: frozenset[str]
    host_holders: Sequence[Holder]
    sockets_before: Mapping[int, Waiting]
    sockets: Mapping[int, Waiting]

    @property
    def seconds(self) -> float:
        """Time between the samples."""
        return max(self.host.time_s - self.before.time_s, 1e-3)

    @cached_property
    def links(self) -> tuple[DeviceChange, ...]:
        """The selected devices that are in both samples."""
        return tuple(
            DeviceChange(device, self._later[_key(device)], self.seconds)
            for device in self._selected()
            if _key(device) in self._later
        )

    @cached_property
    def gone(self) -> tuple[str, ...]:
        """Labels of the selected devices that are in the first sample only."""
        return tuple(device.label for device in self._selected() if _key(device) not in self._later)

    @cached_property
    def _later(self) -> dict[tuple[int, int, str], Device]:
        return {_key(device): device for device in self.host.devices}

    def _selected(self) -> list[Device]:
        return [device for device in self.before.devices if device.named(self.only)]

    def standing(self, device: Device) -> Waiting | None:
        """Return what waited in both samples in the sockets of a device's readers, at least.

        Returns:
            None: that is not known, or they have other devices open, too.
        """
        pids = [owner.pid for owner in device.owners]
        both = self.sockets_before.keys() & self.sockets.keys()
        if not pids or any(pid not in both or self._devices[pid] > 1 for pid in pids):
            return None
        least = (self.sockets_before[pid].least(self.sockets[pid]) for pid in pids)
        return sum(least, Waiting())

    @cached_property
    def _devices(self) -> Counter[int]:
        """Process -> the number of devices that it has open."""
        return Counter(owner.pid for device in self.host.devices for owner in device.owners)

    def loads(self, device: Device) -> list[ThreadLoad]:
        """Return the loads of the threads of a device's readers, the busiest first."""
        pids = frozenset(owner.pid for owner in device.owners)
        if pids not in self._sorted:
            loads = [load for pid in pids for load in self._loads.get(pid, ())]
            loads.sort(key=lambda load: (-load.run, load.thread.pid, load.thread.tid))
            self._sorted[pids] = loads
        return self._sorted[pids]

    @cached_property
    def _sorted(self) -> dict[frozenset[int], list[ThreadLoad]]:
        """The results of :meth:`loads`: a process may have a thousand threads and devices."""
        return {}

    @cached_property
    def _loads(self) -> dict[int, list[ThreadLoad]]:
        """The loads of all threads, by process."""
        before = {(thread.pid, thread.tid): thread for thread in self.threads_before}
        loads: dict[int, list[ThreadLoad]] = {}
        for thread in self.threads:
            if earlier := before.get((thread.pid, thread.tid)):
                loads.setdefault(thread.pid, []).append(self._load(earlier, thread))
        return loads

    def _load(self, before: Thread, after: Thread) -> ThreadLoad:
        run = min(max(after.run_s - before.run_s, 0.0) / self.seconds, 1.0)
        wait = 0.0
        if before.wait_s is not None and after.wait_s is not None:
            wait = (after.wait_s - before.wait_s) / self.seconds
        # The kernel counts a wait when it ends. Polling finds a thread that never runs.
        polled = self.ready.get(after.tid, 0.0) - run
        if polled >= _SURE_SHARE:
            wait = max(wait, polled)
        return ThreadLoad(after, run, min(max(wait, 0.0), 1.0))


def _key(device: Device) -> tuple[int, int, str]:
    return device.netns_inode, device.ifindex, device.name


@dataclass(frozen=True)
class Record:
    """All that was read of a machine at two times, as tests and bug reports need it.

    Attributes:
        ready: tid -> share of the polls at which the thread was runnable or running.
        sockets_before, sockets_after: as in Observation.
    """

    before: Raw
    after: Raw
    threads_before: list[Thread]
    threads_after: list[Thread]
    ready: dict[int, float]
    system: System
    sockets_before: dict[int, Waiting] = field(default_factory=dict)
    sockets_after: dict[int, Waiting] = field(default_factory=dict)

    def observation(self, only: frozenset[str] = frozenset()) -> Observation:
        """Return the input of the checks.

        Args:
            only: names and patterns of devices; empty: all.
        """
        return Observation(
            before=build(self.before),
            host=build(self.after),
            threads_before=self.threads_before,
            threads=self.threads_after,
            system=self.system,
            ready=self.ready,
            only=only,
            host_holders=self.after.machine.holders,
            sockets_before=self.sockets_before,
            sockets=self.sockets_after,
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        sockets = {
            when: {int(pid): Waiting(**found) for pid, found in data.get(when, {}).items()}
            for when in ("sockets_before", "sockets_after")
        }
        return cls(
            **sockets,
            before=Raw.from_json(data["before"]),
            after=Raw.from_json(data["after"]),
            threads_before=[Thread(**thread) for thread in data["threads_before"]],
            threads_after=[Thread(**thread) for thread in data["threads_after"]],
            ready={int(tid): share for tid, share in data["ready"].items()},
            system=System.from_json(data["system"]),
        )


def record(
    netns: str | None,
    *,
    everywhere: bool,
    seconds: float,
    check: Callable[[Raw], None] = lambda _raw: None,
) -> Record:
    """Sample the machine twice.

    Args:
        netns, everywhere: which namespaces, as for :func:`nodrop.host.read.read`.
        check: called with the first sample; an exception ends the recording.

    Raises:
        NodropError: a namespace does not exist or cannot be entered, or iproute2 is missing.
    """
    before = read(netns, everywhere=everywhere)
    check(before)
    holders = before.machine.holders
    pids = [holder.pid for holder in holders if holder.links]
    programs = [holder.pid for holder in holders if holder.tun and not holder.vhost]
    threads_before, sockets_before = read_threads(pids), _waiting(programs)
    started = time.monotonic()
    ready: Counter[int] = Counter()
    polls = 0
    while (over := time.monotonic() - started) < seconds:
        time.sleep(min(1 / _POLLS_S, max(seconds - over, 0.0)))
        ready += ready_threads(threads_before[:_THREADS_MAX])
        polls += 1
    after = read(netns, everywhere=everywhere)
    return Record(
        before=before,
        after=after,
        threads_before=threads_before,
        threads_after=read_threads(pids),
        ready={tid: count / max(polls, 1) for tid, count in ready.items()},
        system=host_system.read(),
        sockets_before=sockets_before,
        sockets_after=_waiting(programs),
    )


def _waiting(pids: Sequence[int]) -> dict[int, Waiting]:
    return {pid: found for pid in pids if (found := waiting(pid))}
