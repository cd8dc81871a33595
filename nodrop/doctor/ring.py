# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the ring between senders and reader: its drops and its length."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import RING, Verdict, fail, ok, warn
from nodrop.doctor.look import Link, Look
from nodrop.host.model import Driver

USUAL = {"tun": 500, "tap": 1000, "macvtap": 500, "ipvtap": 500}
"""txqueuelen of a new device, by kind."""

REMEDIES = {
    1000: "as VPN guides advise (pritunl, Lightway, OpenVPN in a container)",
    4096: "as advised for the user plane of a 5G core (Open5GS)",
    10000: "as advised for link emulators (mahimahi) and VPNs",
}
"""Values of txqueuelen that guides recommend against drops."""


@RING("ring-drops")
def ring_drops(look: Look, link: Link) -> Verdict | None:
    """The driver drops packets now."""
    if not link.dropped:
        return ok("dropped nothing between the samples", **link.rates)
    causes = {
        name: grown
        for name, count in link.now.drops_by_cause.items()
        if (grown := count - link.before.drops_by_cause.get(name, 0)) > 0
    }
    why = ", ".join(f"{name} {link.rate(count)}" for name, count in sorted(causes.items()))
    return fail(
        f"its driver drops {link.rate(link.dropped)}{f' ({why})' if why else ''}",
        f"{link.rates['dropped_share']:.1%} of what is sent; TCP slows down at each drop",
        *(fixes.unheld(link) if link.backpressure else fixes.flow_control(look, link)),
        **link.rates,
    )


@RING("ring-dropped")
def ring_dropped(look: Look, link: Link) -> Verdict | None:
    """The driver dropped packets earlier, but not now."""
    drops = link.now.tx_dropped
    if link.dropped:
        return None
    if not drops:
        return ok("has never dropped a packet")
    share = drops / (drops + link.now.tx_packets)
    why, next_time, fix = "", "; the next burst may drop, too", fixes.flow_control(look, link)
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
def no_ring(_look: Look, link: Link) -> Verdict | None:
    """The ring has no slot."""
    if link.now.txqueuelen:
        return ok(f"txqueuelen is {link.now.txqueuelen}")
    size = USUAL.get(link.now.kind, 500)
    one = link.now.driver in (Driver.NODROP, Driver.LIVE) and not link.now.direct
    return fail(
        f"txqueuelen is 0: the ring has {'a single slot' if one else 'no slot'}",
        "each packet waits for the one before" if one else "no packet can be delivered",
        fixes.txqueuelen(link.now, size),
    )


@RING("big-ring")
def big_ring(look: Look, link: Link) -> Verdict | None:
    """The ring is longer than usual, and nothing limits the packets in it."""
    device = link.now
    usual = USUAL.get(device.kind, 500)
    if device.txqueuelen <= usual:
        return ok(f"a full ring of {device.txqueuelen} delays {link.delay(device.txqueuelen)}")
    if link.backpressure:
        by = "its senders' socket buffers" if device.direct else "its reader's rate"
        return ok(f"a ring of {device.txqueuelen}, whose fill is limited by {by}")
    known = REMEDIES.get(device.txqueuelen, "more than usual")
    return warn(
        f"txqueuelen is {device.txqueuelen}, {known}",
        f"fewer drops, more latency: a full ring delays {link.delay(device.txqueuelen)}, "
        f"one of {usual} {link.wait(usual)}; no qdisc can shorten it",
        *fixes.flow_control(look, link),
        fixes.txqueuelen(device, usual),
    )


@RING("vhost-stock")
def vhost_stock(look: Look, link: Link) -> Verdict | None:
    """The stock vhost_net reads a device of nodrop's tun."""
    if link.now.driver not in (Driver.NODROP, Driver.LIVE) or not link.now.vhost:
        return None
    if link.now.direct:
        return ok("works with any vhost_net: backpressure acts on sockets")
    if look.host.vhost_net.driver is not Driver.STOCK:
        return ok("vhost_net supports flow control")
    drops = link.counted("drop_foreign")
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
def nodrop_off(_look: Look, link: Link) -> Verdict | None:
    """The device has nodrop's driver, but backpressure is off."""
    if link.now.driver not in (Driver.NODROP, Driver.LIVE):
        return None
    if link.now.enabled:
        return ok("backpressure is on")
    return warn(
        "backpressure is off for this device",
        "a full ring drops, as with the stock driver",
        fixes.backpressure(link.now),
    )
