# SPDX-License-Identifier: GPL-2.0-only
"""Add a PDP context to a GTP device by generic netlink (linux/gtp.h)."""

from __future__ import annotations

import socket
from pathlib import Path

from guestlib.namespaces import inside
from guestlib.process import netns_path
from proof.netlink import attribute, u32
from proof.tunnels.generic import Family

_NEW_PDP = 0
_LINK, _VERSION, _PEER, _MS, _IN_TEI, _OUT_TEI = 1, 2, 4, 5, 8, 9
_GTP1 = 1
_TEI = 7


def add_context(device: str, station: str, peer: str, netns: str | None) -> None:
    """Send packets for an address through the tunnel to a peer.

    Args:
        station: the inner address.
        netns: the device's namespace; None: this one.

    Raises:
        OSError: the kernel refused it.
    """
    with inside(netns_path(netns) if netns else Path("/proc/self/ns/net")):
        link = attribute(_LINK, u32(socket.if_nametoindex(device)))
        family = Family("gtp")
    with family:
        body = link + attribute(_VERSION, u32(_GTP1))
        body += attribute(_PEER, socket.inet_aton(peer)) + attribute(_MS, socket.inet_aton(station))
        body += attribute(_IN_TEI, u32(_TEI)) + attribute(_OUT_TEI, u32(_TEI))
        family.command(_NEW_PDP, body, version=0)
