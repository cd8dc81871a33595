# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the qdisc, which holds what the ring does not, and of tunnels, which have no ring."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import MACHINE, RING, TUNNEL, Verdict, fail, ok, skipped, warn
from nodrop.doctor.look import Link, Look

MANAGED = frozenset({"fq_codel", "cake", "fq", "fq_pie", "codel", "pie", "cake_mq"})
"""Qdiscs that keep themselves short, or give each flow its own place."""
_PLAIN = frozenset({"pfifo", "pfifo_fast", "bfifo", "pfifo_head_drop"})
_LONG_PACKETS = 1000
_SYSCTL = "/etc/sysctl.d/90-qdisc.conf"


@MACHINE("default-qdisc")
def default_qdisc(look: Look) -> Verdict | None:
    """New devices get a qdisc that does not keep itself short."""
    kind = look.host.default_qdisc
    if not kind:
        return skipped("only the machine's first network namespace has net.core.default_qdisc")
    if kind in MANAGED:
        return ok(f"new devices get {kind}")
    return warn(
        f"new devices get {kind}",
        "a plain queue: one bulk flow delays all others by the whole queue",
        "sysctl -w net.core.default_qdisc=fq_codel",
        f"echo net.core.default_qdisc=fq_codel >{_SYSCTL}",
    )


@RING("noqueue")
def noqueue(_look: Look, link: Link) -> Verdict | None:
    """There is no qdisc that could hold a packet."""
    device = link.now
    if device.direct or not device.up or device.qdisc.kind == "noop":
        return None
    if device.qdisc.kind != "noqueue":
        return ok(f"{device.qdisc.label} can hold packets")
    judge = fail if link.dropped else warn
    return judge(
        "has no qdisc (noqueue)",
        "nobody can hold a packet when the ring is full: it is dropped, with any driver",
        fixes.fq_codel(device),
    )


@RING("bufferbloat")
def bufferbloat(_look: Look, link: Link) -> Verdict | None:
    """A long plain queue in front of a ring that pushes back."""
    device = link.now
    if device.direct or not device.enabled or device.qdisc.kind in ("noqueue", "noop"):
        return None
    kinds = {device.qdisc.kind, *device.qdisc.leaves} & _PLAIN
    limit = device.qdisc.limit_packets or device.txqueuelen
    if not kinds or "bfifo" in kinds:
        return ok(f"{device.qdisc.label} holds the packets")
    wait, full_ms = link.delay(limit), link.wait_ms(limit)
    if limit < _LONG_PACKETS:
        return ok(f"{device.qdisc.label} of {limit} packets: {wait} when full", full_ms=full_ms)
    return warn(
        f"{device.qdisc.label} holds up to {limit} packets, {device.qdisc.queued_packets} now",
        f"bufferbloat: the last of them waits for {wait}",
        fixes.fq_codel(device),
        full_ms=full_ms,
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
        return ok(f"{label} dropped {device.qdisc.drops} packets since it was set up", **numbers)
    rate = link.rate(drops)
    if kinds & MANAGED:
        return ok(f"{label} drops {rate}: queue management at work", **numbers)
    return warn(
        f"{label} drops {rate}",
        "its queue is full: senders are faster than the reader, and each waits for the whole queue",
        fixes.fq_codel(device),
        **numbers,
    )


@TUNNEL("tunnel-drops")
def tunnel_drops(_look: Look, link: Link) -> Verdict | None:
    """A tunnel drops packets."""
    lost = link.now.tx_dropped
    show = fixes.inside(link.now, "ip", "-s", "-s", "link", "show", "dev", link.now.name)
    if link.dropped:
        return fail(
            f"drops {link.rate(link.dropped)}",
            "no route to its other end, or packets that do not fit; TCP slows down at each loss",
            show,
            **link.rates,
        )
    if lost:
        return warn(
            f"dropped {lost:,} packets since it was made, none now",
            f"{lost / (lost + link.now.tx_packets):.1%} of what was sent",
            show,
            **link.rates,
        )
    return ok("has never dropped a packet", **link.rates)
