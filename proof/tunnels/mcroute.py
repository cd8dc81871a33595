# SPDX-License-Identifier: GPL-2.0-only
"""A VXLAN device whose packets wait for a multicast route (linux/mroute.h).

``ip`` knows the device's option since version 6.17 only, so it is created by netlink.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guestlib.failure import GuestError
from guestlib.process import ip_batch
from proof.netlink import CREATE, Requester, attribute, nested, text, u32
from proof.tunnels.links import HERE4, IPV4
from proof.tunnels.packets import VNET
from proof.tunnels.topology import BELOW, NAME, below
from proof.tunnels.wire import packet_socket

_NEWLINK, _IFNAME, _LINKINFO, _KIND, _DATA = 16, 3, 18, 1, 2
_ID, _GROUP, _LINK, _PORT, _MC_ROUTE = 1, 2, 3, 15, 34
_INIT, _ADD_VIF, _ADD_MFC, _DEL_MFC = 200, 202, 204, 205
_BY_INDEX = 8
_WAITING = Path("/proc/net/ip_mr_cache")
_ADDRESS = "239.1.1.1"
_OTHER = "ndother0"
_FRAME = bytes.fromhex("020000000001 020000000002 0800") + bytes(50)
_GRACE_S = 0.5


def _create() -> None:
    """Create the VXLAN device.

    Raises:
        OSError: the kernel refused it.
    """
    data = attribute(_ID, u32(7)) + attribute(_GROUP, socket.inet_aton(_ADDRESS))
    data += attribute(_LINK, u32(socket.if_nametoindex(BELOW)))
    data += attribute(_PORT, struct.pack(">H", 4789)) + attribute(_MC_ROUTE, b"\1")
    link = text(_IFNAME, NAME) + nested(_LINKINFO, text(_KIND, "vxlan"), nested(_DATA, data))
    with Requester(socket.NETLINK_ROUTE) as sock:
        sock.request(_NEWLINK, bytes(16) + link, CREATE)


def _add_vif(router: socket.socket, number: int, device: str) -> None:
    index = struct.pack("=i4x", socket.if_nametoindex(device))
    vif = struct.pack("=HBBI", number, _BY_INDEX, 1, 0) + index
    router.setsockopt(socket.IPPROTO_IP, _ADD_VIF, vif)


def _set_route(router: socket.socket, option: int) -> None:
    """Add or delete the multicast route, as if its source were behind another device."""
    head = socket.inet_aton(HERE4) + socket.inet_aton(_ADDRESS) + struct.pack("=H", 1)
    router.setsockopt(socket.IPPROTO_IP, option, head + bytes(32) + bytes(2 + 4 * 4))


def _send(sock: socket.socket) -> None:
    sock.sendto(bytes(VNET.size) + _FRAME, (NAME, IPV4, 0, 0, b""))


def _wait_for_route(sock: socket.socket) -> None:
    """Send a packet.

    Raises:
        GuestError: none waits for a multicast route.
    """
    _send(sock)
    waiting = _WAITING.read_text(encoding="ascii")
    if " -1 " not in waiting:
        raise GuestError(f"no packet waits for a multicast route: {waiting}")


@contextmanager
def _one_cpu() -> Iterator[None]:
    """Stay on one CPU for the block: the device caches a route for each."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@contextmanager
def _router() -> Iterator[socket.socket]:
    """Be the multicast router of the lower device and another one for the block."""
    with below(), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP) as router:
        router.setsockopt(socket.IPPROTO_IP, _INIT, 1)
        ip_batch([f"link add {_OTHER} type dummy", f"link set {_OTHER} up"])
        try:
            _add_vif(router, 0, BELOW)
            _add_vif(router, 1, _OTHER)
            yield router
        finally:
            ip_batch([f"link delete {_OTHER}"])


def resolve_late() -> None:
    """Let packets wait for a multicast route until their own route is gone.

    Raises:
        GuestError: no packet waits.
    """
    with _one_cpu(), _router() as router:
        _create()
        ip_batch([f"link set {NAME} up"])
        with packet_socket(NAME) as sock:
            # The first packet has a reference on the route that the device then caches.
            _wait_for_route(sock)
            _set_route(router, _ADD_MFC)
            _set_route(router, _DEL_MFC)
            _wait_for_route(sock)
            # Invalidates the cached route; the next packet drops it.
            ip_batch([f"route add 198.51.100.0/24 dev {BELOW}"])
            _send(sock)
        time.sleep(_GRACE_S)
        _set_route(router, _ADD_MFC)
        ip_batch([f"link delete {NAME}"])
