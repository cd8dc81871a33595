# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the kernel's own tunnels, which have no ring."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import CHECKS, Verdict, fail, ok, warn
from nodrop.doctor.look import Link, Look

OVERHEAD = {"vxlan": 50, "gretap": 38, "gre": 24, "ipip": 20, "sit": 20, "vti": 20}
"""Bytes that a tunnel over IPv4 puts around a packet, at least."""


@CHECKS.tunnel("tunnel-drops")
def tunnel_drops(_look: Look, link: Link) -> Verdict | None:
    """A tunnel drops packets."""
    lost = link.now.tx_dropped
    show = fixes.inside(link.now, "ip", "-s", "-s", "link", "show", "dev", link.now.name)
    if link.dropped:
        return fail(
            f"drops {link.rate(link.dropped)}",
            "no route to its other end, or packets that do not fit; TCP slows down at each loss",
            show,
        )
    if lost:
        return warn(
            f"dropped {lost:,} packets since it was made, none now",
            f"{lost / (lost + link.now.tx_packets):.1%} of what was sent",
            show,
        )
    return ok("has never dropped a packet")


@CHECKS.tunnel("tunnel-mtu")
def tunnel_mtu(_look: Look, link: Link) -> Verdict | None:
    """Full-sized packets of a tunnel do not fit into the link below it."""
    device = link.now
    room, around = device.lower_mtu, OVERHEAD.get(device.kind)
    if room is None or around is None:
        return None
    fits = room - around
    if device.mtu <= fits:
        return ok(f"its MTU of {device.mtu} fits into {room}")
    return warn(
        f"its MTU is {device.mtu}, but only {fits} fit into the link below ({room} - {around})",
        "full-sized packets are fragmented or dropped",
        fixes.inside(device, "ip", "link", "set", "dev", device.name, "mtu", str(fits)),
    )
