# SPDX-License-Identifier: GPL-2.0-only
"""Checks of devices: the program or vhost thread that reads the ring."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nodrop.doctor import fixes
from nodrop.doctor.device import LONG_MS, readers_text
from nodrop.doctor.findings import RING, Verdict, fail, note, ok, skipped, warn
from nodrop.doctor.observation import DeviceChange, Observation, QueueChange, ThreadLoad
from nodrop.host.counters import wait_ms
from nodrop.host.model import Owner
from nodrop.host.procfs import POLICIES
from nodrop.proc import join

_WAIT_SHARE = 0.25
_LONG_WAIT_SHARE = 0.5
_SATURATED = 0.9
_ASLEEP = 0.05
"""Share of a CPU that a sleeping thread may use, such as for a timer."""
_STOPPED = frozenset("Tt")
_LISTED = 5
"""Queues that are listed."""
_IDLE_POLICY, _BATCH_POLICY = 5, 3
VCPU = re.compile(r"CPU \d+/|vcpu\d|fc_vcpu")
"""Names of threads that run a guest's vCPUs and do not read the device."""
_NOISE_BYTES = 64_000
"""What may wait in sockets at any time."""
_BESIDE_BYTES = 700
"""Memory of a packet in a socket besides its own bytes, at least."""
_MOVING_BYTES_S = 10_000.0
_WIREGUARD = frozenset({"wireguard-go", "boringtun", "boringtun-cli", "tailscaled"})


@RING("no-reader")
def no_reader(observation: Observation, link: DeviceChange) -> Verdict | None:
    device = link.now
    if not device.up:
        return None
    if device.owners or device.queues:
        return ok(f"is open: {', '.join(owner.name for owner in device.owners) or 'owner unknown'}")
    if device.carrier and observation.host.hidden_processes:
        return _unseen(observation)
    down = fixes.inside(device, "ip", "link", "set", "dev", device.name, "down")
    start = "# start the program that reads it, or:"
    return warn("is up, but no process has it open", "packets sent to it are dropped", start, down)


@RING("reader-stuck")
def reader_stuck(observation: Observation, link: DeviceChange) -> Verdict | None:
    """The reader has the device open, but takes no packets although there are some."""
    device = link.now
    if not device.up or not (device.queues or device.owners):
        return None
    left = _left_behind(observation, link)
    unread = [queue for queue in link.queues if queue.unread and queue not in left]
    # Other drivers only report that they drop.
    if not unread and (link.delivered or link.backpressure or not link.dropped):
        return ok(f"its reader takes {link.rate(link.delivered)}")
    where = f" {_queues_text(unread)}" if unread else ""
    packets = sum(queue.ring for queue in unread)
    ring = f"; packets in the ring: {packets}" if unread else ""
    drops = f"; {link.rate(link.dropped)} dropped" if link.dropped else ""
    lost = bool(link.dropped) and not link.delivered
    judge = fail if lost or any(queue.loses for queue in unread) else warn
    return judge(
        f"{readers_text(link, unread)} did not read{where}{ring}",
        f"nothing is delivered{' from there' if link.delivered else ''}{drops}",
        *_wake_commands(observation, link),
        *_fewer_queues(link, unread),
        unread_queues=len(unread),
        ring_packets=packets,
        dropped_packets_per_s=link.dropped / link.seconds,
        **_idle_times(unread),
    )


def _queues_text(queues: Sequence[QueueChange]) -> str:
    more = len(queues) - _LISTED
    return ", ".join(queue.label for queue in queues[:_LISTED]) + (f" and {more} more" * (more > 0))


def _idle_times(queues: Sequence[QueueChange]) -> dict[str, float]:
    return {name: value for queue in queues for name, value in queue.idle_times.items()}


def _wake_commands(observation: Observation, link: DeviceChange) -> list[str]:
    """Return commands that continue a device's stopped processes, or show what others wait for."""
    stopped = {
        load.thread.pid for load in observation.loads(link.now) if load.thread.state in _STOPPED
    }
    pids = [owner.pid for owner in link.now.owners]
    lines = [f"kill -CONT {pid}" for pid in pids if pid in stopped]
    lines += [f"cat /proc/{pid}/status /proc/{pid}/wchan" for pid in pids if pid not in stopped]
    return [*lines, "# a process that hangs: restart it"]


def _fewer_queues(link: DeviceChange, unread: Sequence[QueueChange]) -> Iterator[str]:
    if 0 < len(unread) < link.now.queues:
        yield "# a program that opens more queues than it reads: detach them (IFF_DETACH_QUEUE)"


@RING("reader-edge")
def reader_edge(observation: Observation, link: DeviceChange) -> Verdict | None:
    """The reader left packets in the ring, and may sleep until an edge that none of them brings."""
    edges = [owner for owner in link.now.owners if owner.edge]
    if not link.queues or link.now.vhost or not edges:
        return None
    waiting = [queue for queue in link.queues if queue.still or queue.backs_up]
    if not waiting:
        return ok("is watched for edges alone (EPOLLET), and no packet waits for the next one")
    if left := _left_behind(observation, link):
        packets = sum(queue.ring for queue in left)
        return fail(
            f"{readers_text(link, left, edges)} left {packets} packets in the ring and sleeps "
            f"until an edge (EPOLLET): {_queues_text(left)}",
            "they wait until another packet comes: a TCP connection may stand until its timeout",
            "# have its program read until EAGAIN before epoll_wait(), or watch without EPOLLET",
            "# one that does, as programs in Go, waits for something else: restart it",
            ring_packets=packets,
            **_idle_times(left),
        )
    loads = _edge_loads(observation, link)
    if any(load.thread.state in _STOPPED for load in loads):
        return ok("is watched for edges alone (EPOLLET), and stopped by a signal")
    packets = sum(queue.ring for queue in waiting)
    busy = f" ({loads[0].label} uses {loads[0].run:.0%} of a CPU)" if loads else ""
    return note(
        f"{packets} packets wait in the ring for {readers_text(link, waiting, edges)}, which is "
        "watched for edges alone (EPOLLET); whether it sleeps cannot be seen",
        f"if it does{busy}, its own output is slow, or it does not read until EAGAIN: a stopped "
        "queue brings no edge, and the stall guard wakes it 8 to 60 times a second",
        "# if its output is not slow: have its program read until EAGAIN",
        ring_packets=packets,
        **{f"queue{queue.now.index}_taken_packets_per_s": queue.taken_s for queue in waiting},
    )


def _edge_loads(observation: Observation, link: DeviceChange) -> list[ThreadLoad]:
    """Return the threads that may read a file that is watched for edges alone."""
    return [load for load in _readers(observation, link) if _owner(link, load).edge]


def _left_behind(observation: Observation, link: DeviceChange) -> list[QueueChange]:
    """Return the queues with packets that wait for an edge: nothing reads, and a thread sleeps.

    Which thread reads is not known, and others of the program may work. A process without EPOLLET
    that has the same file does not read it: the packets would have woken it.
    """
    device = link.now
    # Nothing shows which queue a file has: all must be watched for edges alone.
    if device.vhost or sum(owner.edge for owner in device.owners) < max(device.queues, 1):
        return []
    loads = _edge_loads(observation, link)
    sleeps = any(load.run <= _ASLEEP and load.thread.state not in _STOPPED for load in loads)
    return [queue for queue in link.queues if queue.still and sleeps]


@RING("guard-tripped")
def guard_tripped(observation: Observation, link: DeviceChange) -> Verdict | None:
    """The stall guard found the reader stalled, now or earlier."""
    trips = link.now.counter("guard_trips")
    if trips is None:
        return None
    if not trips:
        return ok("the stall guard never found its reader stalled")
    slow = [queue for queue in link.queues if queue.trickles]
    times = "once" if trips == 1 else f"{trips} times"
    host, module = observation.host, "tap" if link.now.direct else "nodrop"
    limit = (host.tap_guard_ms if link.now.direct else host.guard_ms) or 0
    numbers = {f"queue{queue.now.index}_stalled_s": queue.stalled_s for queue in slow}
    numbers |= {f"queue{queue.now.index}_taken_packets_per_s": queue.taken_s for queue in slow}
    rates = ", ".join(f"{queue.taken_s:,.1f}/s from {queue.label}" for queue in slow[:_LISTED])
    seen = f"its reader was stalled {times}, and {_stalled_text(link)}"
    if slow:
        seen = f"{readers_text(link, slow)} takes packets too slowly: {rates}"
    judge = fail if any(queue.counts.get("drop_guard") for queue in slow) else warn
    return judge(
        seen,
        f"it did not take what its ring held within {limit} ms: then the ring drops",
        "# if the reader may need longer (such as a suspended VM), give it more time:",
        f"echo {max(limit * 5, 5000)} >/sys/module/{module}/parameters/guard_ms",
        guard_trips=trips,
        **numbers,
    )


def _stalled_text(link: DeviceChange) -> str:
    stalled = [queue for queue in link.queues if queue.now.stalled_ms]
    if stalled:
        return f"is stalled now: {_queues_text(stalled)}"
    known = all(queue.now.stalled_ms is not None for queue in link.queues)
    now = link.totals.get("guard_trips", 0) or link.totals.get("drop_guard", 0)
    return "is stalled now" if now and not known else "is not now"


@RING("reader-starved")
def reader_starved(observation: Observation, link: DeviceChange) -> Verdict | None:
    """A reading thread is runnable, but does not get a CPU."""
    loads = observation.loads(link.now)
    if not loads:
        return _hidden(observation, link)
    worst = max(loads, key=lambda load: load.wait)
    if worst.wait < _WAIT_SHARE:
        return ok(f"{worst.label} lacks a CPU {worst.wait:.0%} of the time", wait_share=worst.wait)
    judge = fail if worst.wait >= _LONG_WAIT_SHARE else warn
    policy = POLICIES.get(worst.thread.policy, "")
    how = f" (SCHED_{policy})" if policy else f" (nice {worst.thread.nice})"
    return judge(
        f"{worst.label}{how} is ready to run but waits for a CPU {worst.wait:.0%} of the time",
        "packets wait for the reader, not for the network; a longer queue does not help",
        *_more_cpu(link, worst),
        wait_share=worst.wait,
    )


def _more_cpu(link: DeviceChange, load: ThreadLoad) -> list[str]:
    thread = load.thread
    fix = []
    if thread.policy in (_IDLE_POLICY, _BATCH_POLICY):
        fix.append(f"chrt --other --pid 0 {thread.tid}")
    fix.append(f"renice -n {max(min(thread.nice, 0) - 5, -20)} -p {thread.tid}")
    if unit := _owner(link, load).cgroup.service:
        fix.append(join("systemctl", "set-property", "--", unit, "CPUWeight=1000"))
    fix.append("# or give it a CPU of its own: taskset -cp N " + str(thread.tid))
    return fix


@RING("reader-saturated")
def reader_saturated(observation: Observation, link: DeviceChange) -> Verdict | None:
    """A reading thread uses a whole CPU."""
    loads = _readers(observation, link)
    if not loads:
        return _hidden(observation, link)
    busiest = loads[0]
    if busiest.run < _SATURATED:
        return ok(f"{busiest.label} uses {busiest.run:.0%} of a CPU", run_share=busiest.run)
    return warn(
        f"{busiest.label} uses {busiest.run:.0%} of one CPU",
        f"that thread limits the device: {link.bytes_s * 8 / 1e6:,.1f} Mbit/s now",
        "# reduce the work per packet (cipher, offloads, a larger MTU), or use more queues",
        run_share=busiest.run,
    )


@RING("vpn-queue")
def vpn_queue(observation: Observation, link: DeviceChange) -> Verdict | None:
    """Packets wait in the sockets of the program that reads, where its device has no say."""
    device, found = link.now, observation.standing(link.now)
    if device.vhost or device.direct or not found:
        return None
    now = link.increase.link
    unread_ms = _socket_ms(found.unread, now.get("rx_bytes"), now.get("rx_packets"), link)
    unsent_ms = _socket_ms(found.unsent, now.get("tx_bytes"), now.get("tx_packets"), link)
    known = {"unread_wait_ms": unread_ms, "unsent_wait_ms": unsent_ms}
    numbers: dict[str, float] = {name: ms for name, ms in known.items() if ms is not None}
    if not numbers:
        return None
    numbers |= {
        "unread_bytes": found.unread,
        "unsent_bytes": found.unsent,
        "unacknowledged_bytes": found.unacknowledged,
    }
    who = readers_text(link, [])
    if (unread_ms or 0.0) >= max(unsent_ms or 0.0, LONG_MS):
        return note(
            f"{who} left {found.unread / 1e3:,.0f} kB unread in its sockets, up to "
            f"{unread_ms:,.0f} ms",
            "it is slower than its far end sends, and no TUN driver can shorten that queue",
            *_shaped("at the far end", "DEV", link.mbit_s(now["rx_bytes"])),
            **numbers,
        )
    if (unsent_ms or 0.0) >= LONG_MS:
        return note(
            f"{who} has {found.unsent / 1e3:,.0f} kB in its sockets that a lower device has not "
            f"sent, up to {unsent_ms:,.0f} ms",
            "that queue is below the tunnel, and no TUN driver can shorten it",
            *_shaped("here", device.name, link.mbit_s(now["tx_bytes"])),
            **numbers,
        )
    return ok("little waits in the sockets of its program", **numbers)


def _socket_ms(
    memory: int, size: int | None, packets: int | None, link: DeviceChange
) -> float | None:
    """Return how long what is in sockets waits at most, ms; None: too little passes to tell.

    Args:
        memory: bytes.
        size, packets: that passed the device in that direction between the samples.
    """
    if not size or not packets or size / link.seconds < _MOVING_BYTES_S:
        return None
    if memory < _NOISE_BYTES:
        return 0.0
    mean = size / packets
    return wait_ms(round(memory * mean / (mean + _BESIDE_BYTES)), size / link.seconds)


def _shaped(where: str, name: str, mbit_s: float) -> tuple[str, str]:
    cake = ("cake", "bandwidth", "RATE", "no-split-gso")
    return (
        f"# {where}, a RATE below the {mbit_s:,.1f} Mbit/s of now keeps that queue in a qdisc:",
        f"# {join('tc', 'qdisc', 'replace', 'dev', name, 'root', *cake)}",
    )


def _owner(link: DeviceChange, load: ThreadLoad) -> Owner:
    """Return the process that a thread belongs to or works for."""
    return next(owner for owner in link.now.owners if owner.pid == load.thread.pid)


def _readers(observation: Observation, link: DeviceChange) -> list[ThreadLoad]:
    """Return the threads that may read the device, the busiest first."""
    loads = observation.loads(link.now)
    if link.now.vhost:
        loads = [load for load in loads if load.thread.vhost] or loads
    return [load for load in loads if not VCPU.match(load.thread.name)]


def _hidden(observation: Observation, link: DeviceChange) -> Verdict | None:
    opened = link.now.carrier or link.now.queues
    if opened and not link.now.owners and observation.host.hidden_processes:
        return _unseen(observation)
    return None


def _unseen(observation: Observation) -> Verdict:
    if observation.host.root:
        return skipped("the process that has it open could not be inspected")
    return skipped("needs root (a process of another user has it open)")


@RING("ring-foreign")
def ring_foreign(observation: Observation, link: DeviceChange) -> Verdict | None:
    """A kernel module without flow control, other than vhost_net, reads the ring."""
    if not link.now.ours or link.now.vhost:
        return None
    drops = link.totals.get("drop_foreign", 0)
    if not drops:
        return ok("its reader supports flow control")
    return fail(
        f"drops {link.rate(drops)}: a kernel module without flow control reads its ring",
        "the ring drops as with the stock driver",
        *(() if observation.host.hidden_processes else ("lsmod | grep -w tun",)),
    )


@RING("several-queues")
def several_queues(observation: Observation, link: DeviceChange) -> Verdict | None:
    """A program reads several queues, so that it may put a flow's packets out of order."""
    device = link.now
    # The rps_cpus of the receive queues do not change the verdict. TUN assigns a flow to a queue
    # when the program writes. RPS comes later, and only selects the CPU for the packets: it can
    # neither keep a flow in its queue, nor restore the order in which threads wrote.
    if device.queues < 2 or not device.multi_queue or not device.owners or device.vhost:
        return None
    return note(
        f"{device.queues} queues; a flow comes out of the queue that its answers went into",
        "a program that moves flows, or whose threads share them, reorders TCP's packets",
        "# let one thread have all of a flow, both ways; one queue keeps the order by itself",
        queues=device.queues,
        reader_threads=len(observation.loads(device)),
    )


@RING("offloads-left")
def offloads_left(_observation: Observation, link: DeviceChange) -> Verdict | None:
    """The kernel leaves checksums or segmentation to a reader without vnet_hdr."""
    device = link.now
    if not device.persist or device.vnet_hdr is not False or not device.queues:
        return None
    if not device.checksums:
        return ok("is persistent, and no earlier owner left offloads on")
    return warn(
        "is persistent; an earlier owner left offloads on, and this one uses no vnet_hdr",
        "its reader gets packets without a checksum, or larger than the MTU",
        "# have its program call TUNSETOFFLOAD with 0; or stop it, delete the device and start it",
    )


@RING("kernel-instead")
def kernel_instead(observation: Observation, link: DeviceChange) -> Verdict | None:
    """A VPN program does in user space what the kernel can do without a TUN device."""
    for owner in link.now.owners:
        module, how = "wireguard", "# wg-quick uses it unless a user-space program is configured"
        if owner.name == "tailscaled":
            how = "# tailscaled cannot use it; plain WireGuard can, between known addresses"
        elif owner.name == "openvpn" and link.now.kind == "tun":
            module, how = "ovpn", "# OpenVPN 2.7 uses it automatically with AEAD ciphers"
            how += ", but not with compression, fragment, proxies or static keys"
        elif owner.name not in _WIREGUARD:
            continue
        if module in observation.system.in_kernel:
            return note(
                f"{owner.name}({owner.pid}) encrypts in user space, and this kernel has {module}",
                "each packet is copied to the program and back; the kernel's driver has no ring",
                how,
            )
    return None
