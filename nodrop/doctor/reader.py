# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the program or vhost thread that reads a device."""

from __future__ import annotations

import re

from nodrop.doctor import fixes
from nodrop.doctor.finding import RING, Verdict, fail, ok, skipped, warn
from nodrop.doctor.look import Link, Load, Look
from nodrop.host.model import Driver, Owner
from nodrop.host.threads import POLICIES
from nodrop.shell import join

_WAIT = 0.25
_WAIT_LONG = 0.5
_SATURATED = 0.9
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
def reader_stuck(_look: Look, link: Link) -> Verdict | None:
    """The reader has the device open, but takes no packets although there are some."""
    device = link.now
    if not device.up or not (device.queues or device.owners):
        return None
    full = [queue.ring_packets for queue in device.queue if queue.ring_packets]
    had = [queue.ring_packets for queue in link.before.queue if queue.ring_packets]
    guarded = link.counted("guard_trips") or link.counted("drop_guard")
    idle = not link.delivered
    waits = idle and bool(full) and sum(full) >= max(sum(had), 1) and bool(had)
    if not (idle and (guarded or (link.dropped and not link.backpressure))) and not waits:
        return ok(f"its reader takes {link.rate(link.delivered)}")
    who = ", ".join(f"{owner.name}({owner.pid})" for owner in device.owners) or "its reader"
    ring = f"; {sum(full)} packets wait in its ring" if full else ""
    after = "; the stall guard lets the ring drop" if guarded else ""
    pids = [owner.pid for owner in device.owners]
    return fail(
        f"{who} {'do' if len(device.owners) > 1 else 'does'} not read{ring}{after}",
        f"nothing is delivered; {link.rate(link.dropped)} dropped",
        *(f"cat /proc/{pid}/status /proc/{pid}/wchan" for pid in pids),
        "# a stopped process: kill -CONT PID; one that hangs: restart it",
    )


@RING("guard-tripped")
def guard_tripped(look: Look, link: Link) -> Verdict | None:
    """The stall guard found the reader stalled, now or earlier."""
    trips = link.now.counter("guard_trips")
    if trips is None:
        return None
    if not trips:
        return ok("the stall guard never found its reader stalled")
    still = link.counted("guard_trips") or link.counted("drop_guard")
    times = "once" if trips == 1 else f"{trips} times"
    host, module = look.host, "tap" if link.now.direct else "nodrop"
    limit = (host.tap_guard_ms if link.now.direct else host.guard_ms) or 0
    return warn(
        f"its reader was found stalled {times}, {'and is stalled now' if still else 'not now'}",
        f"it did not take what its ring held within {limit} ms: then the ring drops",
        "# if the reader may need longer (such as a suspended VM), give it more time:",
        f"echo {max(limit * 5, 5000)} >/sys/module/{module}/parameters/guard_ms",
    )


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
