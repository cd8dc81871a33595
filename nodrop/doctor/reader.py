# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the program or vhost thread that reads a device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nodrop.doctor import fixes
from nodrop.doctor.finding import RING, Verdict, fail, note, ok, skipped, warn
from nodrop.doctor.look import Link, Load, Look
from nodrop.doctor.pair import Pair
from nodrop.host.model import Driver, Owner
from nodrop.host.threads import POLICIES
from nodrop.shell import join

_WAIT = 0.25
_WAIT_LONG = 0.5
_SATURATED = 0.9
_ASLEEP = 0.05
"""Share of a CPU that a thread of a sleeping program may use, such as for a timer."""
_STOPPED = frozenset("Tt")
_MOST = 5
"""Queues that are listed."""
_IDLE_POLICY, _BATCH_POLICY = 5, 3
_VCPU = re.compile(r"CPU \d+/|vcpu\d|fc_vcpu")
"""Names of threads that run a guest's vCPUs and do not read the device."""
_HIDDEN = "needs root (a process of another user has it open)"


@RING("no-reader")
def no_reader(look: Look, link: Link) -> Verdict | None:
    """The device is up, but no process has it open."""
    device = link.now
    if not device.up:
        return None
    if device.owners or device.queues:
        return ok(f"is open: {', '.join(owner.name for owner in device.owners) or 'owner unknown'}")
    if device.carrier and look.host.hidden_processes:
        return skipped(_HIDDEN)
    down = fixes.inside(device, "ip", "link", "set", "dev", device.name, "down")
    start = "# start the program that reads it, or:"
    return warn("is up, but no process has it open", "packets sent to it are dropped", start, down)


@RING("reader-stuck")
def reader_stuck(look: Look, link: Link) -> Verdict | None:
    """The reader has the device open, but takes no packets although there are some."""
    device = link.now
    if not device.up or not (device.queues or device.owners):
        return None
    left = _left_behind(look, link)
    unread = [one for one in link.queues if one.unread and one not in left]
    # Other drivers only report that they drop.
    if not unread and (link.delivered or link.backpressure or not link.dropped):
        return ok(f"its reader takes {link.rate(link.delivered)}")
    verb = "do" if len(device.owners) > 1 else "does"
    where = f" {_list(unread)}" if unread else ""
    packets = sum(one.ring for one in unread)
    ring = f"; packets in the ring: {packets}" if unread else ""
    drops = f"; {link.rate(link.dropped)} dropped" if link.dropped else ""
    lost = bool(link.dropped) and not link.delivered
    judge = fail if lost or any(one.loses for one in unread) else warn
    return judge(
        f"{_who(link)} {verb} not read{where}{ring}",
        f"nothing is delivered{' from there' if link.delivered else ''}{drops}",
        *_awake(look, link),
        *_fewer_queues(link, unread),
        unread_queues=len(unread),
        ring_packets=packets,
        dropped_packets_per_s=link.dropped / link.seconds,
        **{f"queue{one.now.index}_unread_s": one.since_s for one in unread},
    )


def _who(link: Link) -> str:
    return ", ".join(f"{owner.name}({owner.pid})" for owner in link.now.owners) or "its reader"


def _list(queues: Sequence[Pair]) -> str:
    more = len(queues) - _MOST
    return ", ".join(one.label for one in queues[:_MOST]) + (f" and {more} more" * (more > 0))


def _awake(look: Look, link: Link) -> list[str]:
    """Return commands that continue a device's stopped processes, or show what others wait for."""
    stopped = {load.thread.pid for load in look.loads(link.now) if load.thread.state in _STOPPED}
    pids = [owner.pid for owner in link.now.owners]
    lines = [f"kill -CONT {pid}" for pid in pids if pid in stopped]
    lines += [f"cat /proc/{pid}/status /proc/{pid}/wchan" for pid in pids if pid not in stopped]
    return [*lines, "# a process that hangs: restart it"]


def _fewer_queues(link: Link, unread: Sequence[Pair]) -> Iterator[str]:
    if 0 < len(unread) < link.now.queues:
        yield "# a program that opens more queues than it reads: detach them (IFF_DETACH_QUEUE)"


@RING("reader-edge")
def reader_edge(look: Look, link: Link) -> Verdict | None:
    """The reader left packets in the ring, and sleeps until an edge that none of them brings."""
    edges = sum(owner.edge for owner in link.now.owners)
    if not link.queues or link.now.vhost or not edges:
        return None
    left = _left_behind(look, link)
    if not left:
        return ok("is watched for edges alone (EPOLLET), and no packet waits for the next one")
    packets = sum(one.ring for one in left)
    if not any(one.still for one in left):
        return note(
            f"{_who(link)} sleeps most of the time, with {packets} packets in the ring, and is "
            "watched for edges alone (EPOLLET)",
            "either its own output is slow, or it does not read until EAGAIN: a stopped queue "
            "brings no edge, and the stall guard wakes it 8 to 60 times a second",
            "# if its output is not slow: have its program read until EAGAIN",
            ring_packets=packets,
            **{f"queue{one.now.index}_taken_packets_per_s": one.taken_s for one in left},
        )
    return fail(
        f"{_who(link)} left {packets} packets in the ring and sleeps until an edge (EPOLLET): "
        f"{_list(left)}",
        "they wait until another packet comes: a TCP connection may stand until its timeout",
        "# have its program read until EAGAIN before epoll_wait(), or watch without EPOLLET",
        "# one that does, as programs in Go, waits for something else: restart it",
        ring_packets=packets,
        **{f"queue{one.now.index}_unread_s": one.since_s for one in left if one.still},
    )


def _left_behind(look: Look, link: Link) -> list[Pair]:
    """Return the queues whose reader sleeps, is watched for edges alone, and left packets."""
    device = link.now
    if device.vhost or not all(owner.edge == owner.queues for owner in device.owners):
        return []
    loads = look.loads(device)
    if not loads or any(one.run > _ASLEEP or one.thread.state in _STOPPED for one in loads):
        return []
    return [one for one in link.queues if one.still or one.backs_up]


@RING("guard-tripped")
def guard_tripped(look: Look, link: Link) -> Verdict | None:
    """The stall guard found the reader stalled, now or earlier."""
    trips = link.now.counter("guard_trips")
    if trips is None:
        return None
    if not trips:
        return ok("the stall guard never found its reader stalled")
    slow = [one for one in link.queues if one.trickles]
    times = "once" if trips == 1 else f"{trips} times"
    host, module = look.host, "tap" if link.now.direct else "nodrop"
    limit = (host.tap_guard_ms if link.now.direct else host.guard_ms) or 0
    numbers = {f"queue{one.now.index}_stalled_s": one.since_s for one in slow}
    numbers |= {f"queue{one.now.index}_taken_packets_per_s": one.taken_s for one in slow}
    rates = ", ".join(f"{one.taken_s:,.1f}/s from {one.label}" for one in slow[:_MOST])
    seen = f"its reader was stalled {times}, and {_still(link)}"
    if slow:
        seen = f"{_who(link)} takes packets too slowly: {rates}"
    judge = fail if any(one.counted("drop_guard") for one in slow) else warn
    return judge(
        seen,
        f"it did not take what its ring held within {limit} ms: then the ring drops",
        "# if the reader may need longer (such as a suspended VM), give it more time:",
        f"echo {max(limit * 5, 5000)} >/sys/module/{module}/parameters/guard_ms",
        guard_trips=trips,
        **numbers,
    )


def _still(link: Link) -> str:
    stalled = [one for one in link.queues if one.now.stalled_ms]
    if stalled:
        return f"is stalled now: {_list(stalled)}"
    known = all(one.now.stalled_ms is not None for one in link.queues)
    now = link.counted("guard_trips") or link.counted("drop_guard")
    return "is stalled now" if now and not known else "is not now"


@RING("reader-starved")
def reader_starved(look: Look, link: Link) -> Verdict | None:
    """A reading thread is runnable, but does not get a CPU."""
    loads = look.loads(link.now)
    if not loads:
        return _unseen(look, link)
    worst = max(loads, key=lambda load: load.wait)
    if worst.wait < _WAIT:
        return ok(f"{worst.label} lacks a CPU {worst.wait:.0%} of the time", wait_share=worst.wait)
    judge = fail if worst.wait >= _WAIT_LONG else warn
    policy = POLICIES.get(worst.thread.policy, "")
    how = f" (SCHED_{policy})" if policy else f" (nice {worst.thread.nice})"
    return judge(
        f"{worst.label}{how} is ready to run but waits for a CPU {worst.wait:.0%} of the time",
        "packets wait for the reader, not for the network; a longer queue does not help",
        *_more_cpu(link, worst),
        wait_share=worst.wait,
    )


def _more_cpu(link: Link, load: Load) -> list[str]:
    thread = load.thread
    fix = []
    if thread.policy in (_IDLE_POLICY, _BATCH_POLICY):
        fix.append(f"chrt --other --pid 0 {thread.tid}")
    fix.append(f"renice -n {max(min(thread.nice, 0) - 5, -20)} -p {thread.tid}")
    if unit := _owner(link, load).place.service:
        fix.append(join("systemctl", "set-property", unit, "CPUWeight=1000"))
    fix.append("# or give it a CPU of its own: taskset -cp N " + str(thread.tid))
    return fix


@RING("reader-saturated")
def reader_saturated(look: Look, link: Link) -> Verdict | None:
    """A reading thread uses a whole CPU."""
    loads = _readers(look, link)
    if not loads:
        return _unseen(look, link)
    busiest = loads[0]
    if busiest.run < _SATURATED:
        return ok(f"{busiest.label} uses {busiest.run:.0%} of a CPU", run_share=busiest.run)
    return warn(
        f"{busiest.label} uses {busiest.run:.0%} of one CPU",
        f"that thread limits the device: {link.bytes_s * 8 / 1e6:,.1f} Mbit/s now",
        "# reduce the work per packet (cipher, offloads, a larger MTU), or use more queues",
        run_share=busiest.run,
    )


def _owner(link: Link, load: Load) -> Owner:
    """Return the process that a thread belongs to or works for."""
    return next(owner for owner in link.now.owners if owner.pid == load.thread.pid)


def _readers(look: Look, link: Link) -> list[Load]:
    """Return the threads that may read the device, the busiest first."""
    loads = look.loads(link.now)
    if link.now.vhost:
        loads = [load for load in loads if load.thread.vhost] or loads
    return [load for load in loads if not _VCPU.match(load.thread.name)]


def _unseen(look: Look, link: Link) -> Verdict | None:
    opened = link.now.carrier or link.now.queues
    if opened and not link.now.owners and look.host.hidden_processes:
        return skipped(_HIDDEN)
    return None


@RING("ring-foreign")
def ring_foreign(look: Look, link: Link) -> Verdict | None:
    """A kernel module without flow control, other than vhost_net, reads the ring."""
    if link.now.driver not in (Driver.NODROP, Driver.LIVE) or link.now.vhost:
        return None
    drops = link.counted("drop_foreign")
    if not drops:
        return ok("its reader supports flow control")
    return fail(
        f"drops {link.rate(drops)}: a kernel module without flow control reads its ring",
        "the ring drops as with the stock driver",
        *(() if look.host.hidden_processes else ("lsmod | grep -w tun",)),
    )
