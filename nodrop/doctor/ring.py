# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the ring between senders and reader: what it loses, and how long it is."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import RING, Verdict, fail, ok, warn
from nodrop.doctor.look import Link, Look
from nodrop.host.model import Driver

USUAL = {"tun": 500, "tap": 1000, "macvtap": 500, "ipvtap": 500}
"""Slots of a ring that nobody changed."""

REMEDIES = {
    1000: "as VPN guides advise (pritunl, Lightway, OpenVPN in a container)",
    4096: "as advised for the user plane of a 5G core (Open5GS)",
    10000: "as advised for link emulators (mahimahi) and VPNs",
}
"""Values that users set against drops."""


@RING("ring-drops")
def ring_drops(look: Look, link: Link) -> Verdict | None:
    """Packets are lost on their way to the reader now."""
    if not link.dropped:
        return ok("nothing dropped while it was watched", **link.rates)
    causes = {
        name: grown
        for name, count in link.now.drops_by_cause.items()
        if (grown := count - link.before.drops_by_cause.get(name, 0)) > 0
    }
    why = ", ".join(f"{name} {link.rate(count)}" for name, count in sorted(causes.items()))
    return fail(
        f"drops {link.rate(link.dropped)} on the way to its reader{f' ({why})' if why else ''}",
        f"{link.rates['dropped_share']:.1%} of what is sent; TCP slows down at each loss",
        *(fixes.unheld(link) if link.holds else fixes.flow_control(look, link)),
        **link.rates,
    )


@RING("ring-dropped")
def ring_dropped(look: Look, link: Link) -> Verdict | None:
    """Packets were lost earlier, and are not now."""
    lost = link.now.tx_dropped
    if link.dropped:
        return None
    if not lost:
        return ok("has never dropped a packet")
    share = lost / (lost + link.now.tx_packets)
    why, next_time, fix = "", "; the next burst is cut as well", fixes.flow_control(look, link)
    if link.holds:
        causes = ", ".join(f"{name} {count}" for name, count in link.now.drops_by_cause.items())
        why, next_time = f" ({causes or 'cause unknown'})", ""
        fix = (fixes.inside(link.now, "ethtool", "-S", link.now.name),)
    return warn(
        f"dropped {lost:,} packets since it was made, none now{why}",
        f"{share:.1%} of what was sent{next_time}",
        *fix,
        dropped_packets=lost,
        dropped_share=share,
    )


@RING("no-ring")
def no_ring(_look: Look, link: Link) -> Verdict | None:
    """The ring has no slot."""
    if link.now.txqueuelen:
        return ok(f"txqueuelen is {link.now.txqueuelen}")
    size = USUAL.get(link.now.kind, 500)
    return fail(
        "txqueuelen is 0: there is no slot for a packet",
        "nothing can be delivered, or all of it waits for nobody",
        fixes.txqueuelen(link.now, size),
    )


@RING("big-ring")
def big_ring(look: Look, link: Link) -> Verdict | None:
    """The ring is longer than usual, and nothing keeps what is in it short."""
    device = link.now
    usual = USUAL.get(device.kind, 500)
    if device.txqueuelen <= usual:
        return ok(f"a ring of {device.txqueuelen}: {link.delay(device.txqueuelen)} when full")
    if link.holds:
        by = "what its frames cost their sockets" if device.direct else "its reader's pace"
        return ok(f"a ring of {device.txqueuelen}, kept short by {by}")
    known = REMEDIES.get(device.txqueuelen, "more than usual")
    return warn(
        f"txqueuelen is {device.txqueuelen}, {known}",
        f"fewer drops, more latency: a full ring is {link.delay(device.txqueuelen)}, "
        f"one of {usual} {link.wait(usual)}; no qdisc shortens it",
        *fixes.flow_control(look, link),
        fixes.txqueuelen(device, usual),
    )


@RING("vhost-stock")
def vhost_stock(look: Look, link: Link) -> Verdict | None:
    """The kernel's own vhost_net reads a device of nodrop's tun."""
    if link.now.driver not in (Driver.NODROP, Driver.LIVE) or not link.now.vhost:
        return None
    if link.now.direct:
        return ok("any vhost_net will do: what is held are sockets")
    if look.host.vhost_net.driver is not Driver.STOCK:
        return ok("vhost_net knows the protocol")
    lost = link.counted("drop_foreign")
    owners = ", ".join(f"{owner.name}({owner.pid})" for owner in link.now.owners if owner.vhost)
    judge = fail if lost else warn
    return judge(
        "the kernel's own vhost_net reads it beside nodrop's tun"
        + (f": drops {link.rate(lost)}" if lost else ""),
        "it would never wake a sender, so its ring drops as without nodrop",
        f"# stop {owners}",
        "modprobe -r vhost_net",
        "modprobe vhost_net",
        f"# start {owners} again",
    )


@RING("nodrop-off")
def nodrop_off(_look: Look, link: Link) -> Verdict | None:
    """nodrop is there, and off for this device."""
    if link.now.driver not in (Driver.NODROP, Driver.LIVE):
        return None
    if link.now.enabled:
        return ok("nodrop is on")
    return warn(
        "nodrop is off for this device",
        "a full ring drops, as without it",
        fixes.backpressure(link.now),
    )
