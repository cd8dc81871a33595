# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the kernel's own tunnels, which have no ring."""

from __future__ import annotations

from nodrop.doctor import fixes
from nodrop.doctor.finding import TUNNEL, Verdict, fail, ok, warn
from nodrop.doctor.look import Link, Look


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
        )
    if lost:
        return warn(
            f"dropped {lost:,} packets since it was made, none now",
            f"{lost / (lost + link.now.tx_packets):.1%} of what was sent",
            show,
        )
    return ok("has never dropped a packet")
