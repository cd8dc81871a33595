# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the qdisc, which queues what the ring does not take, and of tunnels without a ring."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import MACHINE, RING, TUNNEL, Verdict, fail, note, ok, skipped, warn
from nodrop.doctor.look import Link, Look
from nodrop.host.model import Driver

MANAGED = frozenset({"fq_codel", "cake", "fq", "fq_pie", "codel", "pie", "cake_mq"})
"""Qdiscs that keep their queue short, or give each flow a queue."""
PLAIN = frozenset({"pfifo", "pfifo_fast", "bfifo", "pfifo_head_drop"})
"""Qdiscs with one queue for all, which is as long as it is allowed to be."""
_PROMPT = MANAGED - {"fq", "cake", "cake_mq"} | PLAIN | {"mq", "sfq", "ingress", "clsact"}
"""Qdiscs that neither shape nor starve: packets wait for the device's queue only."""
_LONG_PACKETS = 1000


@MACHINE("default-qdisc")
def default_qdisc(look: Look) -> Verdict | None:
    """New devices get a qdisc that does not keep its queue short."""
    kind = look.host.default_qdisc
    if not kind:
        return skipped("only the initial network namespace has net.core.default_qdisc")
    if kind in MANAGED:
        return ok(f"new devices get {kind}")
    return warn(
        f"new devices get {kind}",
        "a plain queue: one bulk flow delays all others by the whole queue",
        "sysctl -w net.core.default_qdisc=fq_codel",
        "echo net.core.default_qdisc=fq_codel >/etc/sysctl.d/90-qdisc.conf",
    )


@RING("noqueue")
def noqueue(_look: Look, link: Link) -> Verdict | None:
    """The device has no qdisc."""
    device = link.now
    if device.direct or not device.up or device.qdisc.kind == "noop":
        return None
    if device.qdisc.kind != "noqueue":
        return ok(f"{device.qdisc.label} can queue packets")
    judge = fail if link.dropped else warn
    return judge(
        "has no qdisc (noqueue)",
        "there is nowhere to queue packets: a full ring drops, with any driver",
        fixes.fq_codel(device),
    )


@RING("bufferbloat")
def bufferbloat(_look: Look, link: Link) -> Verdict | None:
    """A device with backpressure has a long FIFO as its qdisc."""
    device = link.now
    if device.direct or not device.enabled or device.qdisc.kind in ("noqueue", "noop"):
        return None
    kinds = {device.qdisc.kind, *device.qdisc.leaves} & PLAIN
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
def qdisc_stalled(_look: Look, link: Link) -> Verdict | None:
    """No packet leaves a qdisc that has some, though the device's queue is not stopped."""
    device, was = link.now, {(one.handle, one.parent): one for one in link.before.qdiscs}
    # A stopped queue has packets in its ring; the stock driver never stops one.
    rings = any(queue.ring_packets != 0 for one in (link.before, device) for queue in one.queue)
    stopped = device.driver is Driver.UPSTREAM or (link.backpressure and rings)
    here = device.up and device.carrier and not device.direct
    if stopped or not here or link.seconds < 0.9:
        return None
    stalled = [
        one
        for one in device.qdiscs
        if (old := was.get((one.handle, one.parent))) and one.sent_packets == old.sent_packets
        if one.queued_packets >= old.queued_packets > 0
    ]
    if not stalled:
        return ok("packets leave its qdisc, or none is queued")
    leaf = stalled[-1]
    judge, advice = note, "# its rate or priority may be too low, or it delays on purpose (netem)"
    if {one.kind for one in device.qdiscs} <= _PROMPT:
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
def qdisc_drops(_look: Look, link: Link) -> Verdict:
    """The qdisc drops packets."""
    device = link.now
    kinds = {device.qdisc.kind, *device.qdisc.leaves}
    drops, label = link.qdisc_drops, device.qdisc.label
    numbers = {"dropped_packets_per_s": drops / link.seconds}
    if not drops:
        return ok(f"{label} dropped {device.qdisc.drops} packets since it was created", **numbers)
    rate = link.rate(drops)
    if kinds & MANAGED:
        return ok(f"{label} drops {rate}: its queue management works", **numbers)
    return warn(
        f"{label} drops {rate}",
        "its queue is full: senders are faster than the reader; each packet waits behind it all",
        fixes.fq_codel(device),
        **numbers,
    )


@TUNNEL("tunnel-drops")
def tunnel_drops(_look: Look, link: Link) -> Verdict | None:
    """A tunnel drops packets."""
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
