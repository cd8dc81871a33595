# SPDX-License-Identifier: GPL-2.0-only
"""Queues that outlive a packet's route: of packets without a multicast route, and of IPTFS."""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from guestlib.environment import GuestError, wait_until
from guestlib.process import ip_batch, tool
from tunnels.links import HERE4, IPV4, THERE4
from tunnels.netlink import add_iptfs, add_vxlan_mcroute
from tunnels.packets import VNET
from tunnels.topology import BELOW, NAME, below, packet_socket

# linux/mroute.h
_INIT, _ADD_VIF, _ADD_MFC, _DEL_MFC = 200, 202, 204, 205
_BY_INDEX = 8
_UNRESOLVED = Path("/proc/net/ip_mr_cache")
_GROUP = "239.1.1.1"
_OTHER = "ndother0"
_FRAME = bytes.fromhex("020000000001 020000000002 0800") + bytes(50)
_GRACE_S = 0.5
_DELAY_US = 3_000_000
"""How long packets wait in IPTFS's queue."""
_PORT = 9


def _add_vif(router: socket.socket, number: int, device: str) -> None:
    index = struct.pack("=i4x", socket.if_nametoindex(device))
    vif = struct.pack("=HBBI", number, _BY_INDEX, 1, 0) + index
    router.setsockopt(socket.IPPROTO_IP, _ADD_VIF, vif)


def _set_route(router: socket.socket, option: int) -> None:
    """Add or delete the multicast route, as if its source were behind another device."""
    head = socket.inet_aton(HERE4) + socket.inet_aton(_GROUP) + struct.pack("=H", 1)
    router.setsockopt(socket.IPPROTO_IP, option, head + bytes(32) + bytes(2 + 4 * 4))


def _send(sock: socket.socket) -> None:
    sock.sendto(bytes(VNET.size) + _FRAME, (NAME, IPV4, 0, 0, b""))


def _wait_for_route(sock: socket.socket) -> None:
    """Send a packet.

    Raises:
        GuestError: none waits for a multicast route.
    """
    _send(sock)
    unresolved = _UNRESOLVED.read_text(encoding="ascii")
    if " -1 " not in unresolved:
        raise GuestError(f"no packet waits for a multicast route: {unresolved}")


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
    """Let packets of a VXLAN device wait for a multicast route until their own route is gone.

    Raises:
        GuestError: no packet waits.
    """
    with _one_cpu(), _router() as router:
        add_vxlan_mcroute(NAME, _GROUP, BELOW)
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


def _iptfs_has_sent() -> bool:
    (packets,) = re.findall(r"(\d+)\(packets\)", tool(["ip", "-s", "xfrm", "state"]))
    return int(packets) > 0


def lose_dst() -> None:
    """Let a TCP packet wait in IPTFS's queue until its socket has dropped the dst of both.

    Raises:
        GuestError: the packet did not wait, or did not leave.
    """
    with below(), socket.socket() as sock:
        add_iptfs(HERE4, THERE4, _DELAY_US)
        try:
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.connect((THERE4, _PORT))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 4)
            if _iptfs_has_sent():
                raise GuestError("the packet did not wait")
            if not wait_until(_iptfs_has_sent):
                raise GuestError("the packet did not leave")
        finally:
            tool(["ip", "xfrm", "policy", "flush"])
            tool(["ip", "xfrm", "state", "flush"])
