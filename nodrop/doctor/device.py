# SPDX-License-Identifier: GPL-2.0-only
"""Checks of devices: the ring, the qdisc before it, and the delay in both; kernel tunnels."""

from __future__ import annotations

from collections.abc import Sequence

from nodrop.doctor import fixes
from nodrop.doctor.findings import RING, TUNNEL, Verdict, fail, note, ok, warn
from nodrop.doctor.machine import MANAGED_QDISCS
from nodrop.doctor.observation import DeviceChange, Observation, QueueChange
from nodrop.host.counters import by_cause
from nodrop.host.model import Driver, Owner

USUAL_PACKETS = {"tun": 500, "tap": 1000, "macvtap": 500, "ipvtap": 500}
"""txqueuelen of a new device, by kind."""
PLAIN_QDISCS = frozenset({"pfifo", "pfifo_fast", "bfifo", "pfifo_head_drop"})
"""Qdiscs with one queue for all, which is as long as it is allowed to be."""
_PROMPT_QDISCS = (
    MANAGED_QDISCS - {"fq", "cake", "cake_mq"} | PLAIN_QDISCS | {"mq", "sfq", "ingress", "clsact"}
)
"""Qdiscs that neither shape nor starve: packets wait for the device's queue only."""
_MANY_DROPS = 0.002
"""Share of what is sent. A few flows lose less; tc counts a dropped GSO packet as one."""
_MANY_FLOWS = 12
"""Flows with packets in fq_codel. A longer target costs throughput of a few forwarded flows."""
_SHORT_US = 20_000
"""A target of fq_codel below which dozens of TCP flows lose throughput."""
_LONG_PACKETS = 1000
LONG_MS = 20.0
"""A delay worth a finding."""
_BUSY_PACKETS_S = 100.0
"""Packets per second of a transfer, at which a reader may be at its limit."""
_HEADER_BYTES = 18
"""By which a packet without offloads exceeds the MTU of a TAP: Ethernet and VLAN."""
_RETRY_MS = 1000.0
"""TCP's first timeout (RFC 6298), after which it sends again what only waits."""
_NOT_THAT_SLOW = "# unless its output is that slow: see what it waits for in /proc/PID/wchan"
_FASTER = "# give the reader less work or more CPU time; see reader-starved, reader-saturated"


@RING("ring-drops")
def ring_drops(observation: Observation, link: DeviceChange) -> Verdict | None:
    if not link.dropped:
        return ok("dropped nothing between the samples", **link.rates)
    causes = sorted(by_cause(link.totals).items())
    why = ", ".join(f"{name} {link.rate(count)}" for name, count in causes if count)
    return fail(
        f"its driver drops {link.rate(link.dropped)}{f' ({why})' if why else ''}",
        f"{link.rates['dropped_share']:.1%} of what is sent; TCP slows down at each drop",
        *(fixes.unheld(link) if link.backpressure else fixes.flow_control(observation, link)),
        **link.rates,
    )


@RING("ring-dropped")
def ring_dropped(observation: Observation, link: DeviceChange) -> Verdict | None:
    drops = link.now.tx_dropped
    if link.dropped:
        return None
    if not drops:
        return ok("has never dropped a packet")
    share = drops / (drops + link.now.tx_packets)
    why, next_time, fix = (
        "",
        "; the next burst may drop, too",
        fixes.flow_control(observation, link),
    )
    if link.backpressure:
        causes = ", ".join(f"{name} {count}" for name, count in link.now.drops_by_cause.items())
        why, next_time = f" ({causes or 'cause unknown'})", ""
        fix = (fixes.inside(link.now, "ethtool", "-S", link.now.name),)
    return warn(
        f"its driver dropped {drops:,} packets since it was created, none now{why}",
        f"{share:.1%} of what was sent{next_time}",
        *fix,
        dropped_packets=drops,
        dropped_share=share,
    )


@RING("no-ring")
def no_ring(_observation: Observation, link: DeviceChange) -> Verdict | None:
    if link.now.txqueuelen:
        return ok(f"txqueuelen is {link.now.txqueuelen}")
    size = USUAL_PACKETS.get(link.now.kind, 500)
    slot = link.now.ours and not link.now.direct
    return fail(
        f"txqueuelen is 0: the ring has {'a single slot' if slot else 'no slot'}",
        "each packet waits for the one before" if slot else "no packet can be delivered",
        fixes.txqueuelen(link.now, size),
    )


@RING("big-ring")
def big_ring(observation: Observation, link: DeviceChange) -> Verdict | None:
    """The ring or its packets are larger than usual, and nothing limits what waits in it."""
    device = link.now
    usual, slots = USUAL_PACKETS.get(device.kind, 500), device.txqueuelen
    if link.backpressure:
        by = "its senders' socket buffers" if device.direct else "its reader's rate"
        return ok(f"a ring of {slots}, whose fill is limited by {by}")
    if slots > usual:
        return warn(
            f"txqueuelen is {slots}, more than usual",
            f"fewer drops, more latency: a full ring delays {link.delay(slots)}, "
            f"one of {usual} {link.wait(usual)}; no qdisc can shorten it",
            *fixes.flow_control(observation, link),
            fixes.txqueuelen(device, usual),
        )
    # With several queues all rings are taken to be full: each waits for its share of the rate.
    full = slots * max(device.queues, 1)
    busy = link.delivered >= _BUSY_PACKETS_S * link.seconds
    large = link.packet_bytes > device.mtu + _HEADER_BYTES
    if busy and large and link.wait_ms(full) >= LONG_MS:
        return note(
            f"packets have {link.packet_bytes:,.0f} bytes (offloads): a full ring of {slots} "
            f"delays {link.delay(full)}, if its reader is no faster",
            "TCP can fill it without a drop; only the round trip of a ping shows how full it is",
            *fixes.flow_control(observation, link),
            packet_bytes=link.packet_bytes,
            full_ring_ms=link.wait_ms(full),
        )
    return ok(f"a full ring of {slots} delays {link.delay(slots)}")


@RING("vhost-stock")
def vhost_stock(observation: Observation, link: DeviceChange) -> Verdict | None:
    if not link.now.ours or not link.now.vhost:
        return None
    if link.now.direct:
        return ok("works with any vhost_net: backpressure acts on sockets")
    if observation.host.vhost_net.driver is not Driver.STOCK:
        return ok("vhost_net supports flow control")
    drops = link.totals.get("drop_foreign", 0)
    owners = ", ".join(f"{owner.name}({owner.pid})" for owner in link.now.owners if owner.vhost)
    judge = fail if drops else warn
    return judge(
        "the stock vhost_net reads it, with nodrop's tun"
        + (f": drops {link.rate(drops)}" if drops else ""),
        "the stock vhost_net wakes no sender, so the ring drops as with the stock driver",
        f"# stop {owners}",
        "modprobe -r vhost_net",
        "modprobe vhost_net",
        f"# start {owners} again",
    )


@RING("nodrop-off")
def nodrop_off(_observation: Observation, link: DeviceChange) -> Verdict | None:
    if not link.now.ours:
        return None
    if link.now.enabled:
        return ok("backpressure is on")
    return warn(
        "backpressure is off for this device",
        "a full ring drops, as with the stock driver",
        fixes.backpressure(link.now),
    )


@RING("noqueue")
def noqueue(_observation: Observation, link: DeviceChange) -> Verdict | None:
    device = link.now
    # A driver that drops at a full ring leaves a qdisc nothing to queue.
    if device.direct or not device.enabled or not device.up or device.qdisc.kind == "noop":
        return None
    if device.qdisc.kind != "noqueue":
        return ok(f"{device.qdisc.label} can queue packets")
    judge = fail if link.dropped else warn
    return judge(
        "has no qdisc (noqueue)",
        "there is nowhere to queue packets: a full ring drops, in spite of backpressure",
        fixes.qdisc(device),
    )


@RING("bufferbloat")
def bufferbloat(_observation: Observation, link: DeviceChange) -> Verdict | None:
    """A device with backpressure has a long FIFO as its qdisc."""
    device = link.now
    if device.direct or not device.enabled or device.qdisc.kind in ("noqueue", "noop"):
        return None
    kinds = {device.qdisc.kind, *device.qdisc.leaves} & PLAIN_QDISCS
    limit = device.qdisc.limit_packets or device.txqueuelen
    if not kinds or "bfifo" in kinds:
        return ok(f"{device.qdisc.label} queues the packets")
    wait = link.delay(limit)
    if limit < _LONG_PACKETS:
        return ok(f"{device.qdisc.label} of {limit} packets: {wait} when full")
    return warn(
        f"{device.qdisc.label} queues up to {limit} packets, {device.qdisc.queued_packets} now",
        f"bufferbloat: the last of them waits {wait}",
        fixes.fq_codel(device),
    )


@RING("qdisc-stalled")
def qdisc_stalled(_observation: Observation, link: DeviceChange) -> Verdict | None:
    """No packet leaves a qdisc that has some, though the device's queue is not stopped."""
    device, was = link.now, {(qdisc.handle, qdisc.parent): qdisc for qdisc in link.before.qdiscs}
    # A stopped queue has packets in its ring; the stock driver never stops one.
    rings = any(
        queue.ring_packets != 0 for sample in (link.before, device) for queue in sample.queue
    )
    stopped = device.driver is Driver.UPSTREAM or (link.backpressure and rings)
    here = device.up and device.carrier and not device.direct
    if stopped or not here or link.seconds < 0.9:
        return None
    stalled = [
        qdisc
        for qdisc in device.qdiscs
        if (old := was.get((qdisc.handle, qdisc.parent))) and qdisc.sent_packets == old.sent_packets
        if qdisc.queued_packets >= old.queued_packets > 0
    ]
    if not stalled:
        return ok("packets leave its qdisc, or none is queued")
    leaf = stalled[-1]
    judge, advice = note, "# its rate or priority may be too low, or it delays on purpose (netem)"
    if {qdisc.kind for qdisc in device.qdiscs} <= _PROMPT_QDISCS:
        judge, advice = warn, "# the qdisc does not transmit: 'tc qdisc replace' resets it"
    if link.backpressure:
        off = fixes.backpressure(device, "off", keep=False)
        advice += f"; if '{off}' makes them leave, report a bug"
    return judge(
        f"none of {leaf.queued_packets} packets left {leaf.kind} ({leaf.parent or 'root'}) in "
        f"{link.seconds:.1f} s, and the device's queue is not stopped",
        "they are delayed, and neither the ring nor its reader is the cause",
        fixes.inside(device, "tc", "-s", "qdisc", "show", "dev", device.name),
        advice,
        queued_packets=leaf.queued_packets,
    )


@TUNNEL("tunnel-qdisc-drops")
@RING("qdisc-drops")
def qdisc_drops(_observation: Observation, link: DeviceChange) -> Verdict:
    device = link.now
    kinds = {device.qdisc.kind, *device.qdisc.leaves}
    drops, label = link.qdisc_drops, device.qdisc.label
    numbers = {"dropped_packets_per_s": drops / link.seconds}
    if not drops:
        return ok(f"{label} dropped {device.qdisc.drops} packets since it was created", **numbers)
    rate = link.rate(drops)
    target = device.qdisc.target_us
    # At its limit a longer target would not help: senders that do not slow down filled it.
    managed = drops - link.increase.qdisc.get("limit_drops", 0)
    flows = max(sample.qdisc.flows or 0 for sample in (link.before, device))
    many = managed > _MANY_DROPS * link.increase.qdisc.get("packets", 0) and flows >= _MANY_FLOWS
    if link.backpressure and target and target < _SHORT_US and many:
        return note(
            f"{label} drops {rate}: its queue management works",
            f"its target of {target / 1000:.0f} ms costs throughput of dozens of TCP flows",
            fixes.fq_codel(device),
            **numbers,
        )
    if kinds & MANAGED_QDISCS:
        return ok(f"{label} drops {rate}: its queue management works", **numbers)
    return warn(
        f"{label} drops {rate}",
        "its queue is full: senders are faster than the reader; each packet waits behind it all",
        fixes.fq_codel(device),
        **numbers,
    )


@TUNNEL("tunnel-drops")
def tunnel_drops(_observation: Observation, link: DeviceChange) -> Verdict | None:
    drops = link.now.tx_dropped
    show = fixes.inside(link.now, "ip", "-s", "-s", "link", "show", "dev", link.now.name)
    if not drops:
        return ok("has never dropped a packet", **link.rates)
    if link.dropped:
        cost = "no route to its other end, or packets above the MTU; TCP slows down at each drop"
        return fail(f"drops {link.rate(link.dropped)}", cost, show, **link.rates)
    seen = f"dropped {drops:,} packets since it was created, none now"
    cost = f"{drops / (drops + link.now.tx_packets):.1%} of what was sent"
    return warn(seen, cost, show, **link.rates)


@RING("delay")
def delay(observation: Observation, link: DeviceChange) -> Verdict | None:
    """Packets wait for long, in the ring or in the qdisc."""
    known = [queue for queue in link.queues if queue.measured]
    if not known:
        return None
    worst = max(known, key=_least_ms)
    name = link.now.qdisc.label if worst.now.qdisc is None else worst.qdisc.kind
    size = round(worst.ring * link.packet_bytes)
    seen = f"queue {worst.now.index}: "
    seen += _wait_text("the ring", worst.ring, f"about {size:,}", worst.ring_ms, link)
    waits = {
        "ring_packets": worst.ring,
        "ring_estimate_bytes": size,
        "ring_wait_ms": worst.ring_ms,
    }
    if not link.now.direct:
        packets, size = worst.qdisc.queued_packets, worst.qdisc.queued_bytes
        seen += f"; {_wait_text(name, packets, f'{size:,}', worst.qdisc_ms, link)}"
        waits |= {
            "qdisc_packets": packets,
            "qdisc_bytes": size,
            "qdisc_wait_ms": worst.qdisc_ms,
        }
    numbers = {key: value for key, value in waits.items() if value is not None}
    numbers |= {"queue": worst.now.index, "taken_packets_per_s": worst.taken_s}
    if _least_ms(worst) < LONG_MS:
        return ok(seen, **numbers)
    cost, fix = _remedy(observation, link, worst)
    judge = warn if worst.reader_sets_pace and _least_ms(worst) >= _RETRY_MS else note
    return judge(seen, cost, *fix, **numbers)


def _least_ms(pair: QueueChange) -> float:
    """Return the delay in both; where nothing moves, the time between the samples."""
    return sum(pair.seconds * 1e3 if ms is None else ms for ms in (pair.ring_ms, pair.qdisc_ms))


def _wait_text(
    where: str, packets: int, size: str, wait_ms: float | None, link: DeviceChange
) -> str:
    """Return how long packets of a size in bytes wait: with offloads a packet has up to 64 kB."""
    if not packets:
        return f"nothing in {where}"
    if wait_ms is None:
        return f"{packets} packets in {where}, none left it in {link.seconds:.1f} s"
    digits = 1 if wait_ms < 10 else 0
    return f"{wait_ms:,.{digits}f} ms in {where} ({packets} packets, {size} bytes)"


def _remedy(
    observation: Observation, link: DeviceChange, pair: QueueChange
) -> tuple[str, tuple[str, ...]]:
    """Return where most of the delay is, and what shortens it."""
    ring_ms, qdisc_ms = pair.ring_ms, pair.qdisc_ms
    if ring_ms is None or qdisc_ms is None:
        cost = "where no packet leaves, the delay has no end yet"
        return cost, ("# see reader-stuck, qdisc-stalled",)
    shorter = (fixes.fq_codel(link.now),) if pair.qdisc.kind in PLAIN_QDISCS else ()
    if pair.reader_sets_pace:
        who = readers_text(link, [pair])
        cost = f"{who} takes {pair.taken_s:,.1f} packets/s, and the queue is stopped meanwhile"
        return cost, (*shorter, _NOT_THAT_SLOW, _FASTER)
    if ring_ms > qdisc_ms:
        cost = "most of it in the ring: only a faster reader shortens that"
        return cost, fixes.flow_control(observation, link) or (_FASTER,)
    cost = "most of it in the qdisc: its senders are faster than the reader or a shaper"
    return cost, shorter or (_FASTER,)


def readers_text(
    link: DeviceChange, queues: Sequence[QueueChange], owners: Sequence[Owner] | None = None
) -> str:
    """Return the processes that have some queues open.

    Args:
        owners: those that may read; None: all.
    """
    device = link.now
    owners = device.owners if owners is None else owners
    names = ", ".join(f"{owner.name}({owner.pid})" for owner in owners)
    # Nothing shows which queue a file has.
    some = len(owners) > 1 and 0 < len(queues) < device.queues
    unsure = some and any(owner.queues < device.queues for owner in owners)
    return f"one of {names}" if unsure else names or "its reader"
