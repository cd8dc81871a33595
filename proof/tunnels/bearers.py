# SPDX-License-Identifier: GPL-2.0-only
"""Protocols over UDP without a device: SCTP and TIPC.

Only the distinct headers and lengths are recorded, sorted: how often each occurs depends on time.
"""

from __future__ import annotations

import socket
import struct
import time

from lab.guest.failure import GuestError
from lab.guest.namespaces import inside
from lab.guest.process import in_netns, ip_batch, netns_path, tool
from lab.guest.timing import time_limit
from proof.tunnels.links import BEARERS, HERE4, HERE6, SCTP_PORT, THERE4, THERE6
from proof.tunnels.masked import Masker
from proof.tunnels.packets import payload
from proof.tunnels.topology import BELOW, BEYOND, FAR, below
from proof.tunnels.wire import packet_socket, set_sysctls, take

_SIZES = (1, 10, 1000, 1380, 1400, 1452, 3000, 9000)
_QUIET_S, _TIMEOUT_S, _LINK_S = 0.06, 60.0, 20.0
_TIPC_S = 3.0
"""How long to record TIPC's link maintenance, s."""


def _take(server: socket.socket, size: int) -> None:
    """Read a whole message; its rest may have to wait for an acknowledgement."""
    while size > 0:
        data = server.recv(1 << 16)
        if not data:
            raise GuestError("the association ended")
        size -= len(data)


def _sctp(family: int, here: str, there: str) -> None:
    """Send messages of several sizes, one with a traffic class and over a route with an MTU."""
    for netns in (None, FAR):
        for name in ("udp_port", "encap_port"):
            path = f"/proc/sys/net/sctp/{name}"
            tool(in_netns(netns, ["tee", path]), text=f"{SCTP_PORT}\n")
    # A packet socket cannot receive SCTP's GSO packets.
    tool(["ethtool", "-K", BELOW, "tx-sctp-segmentation", "off"])
    with inside(netns_path(FAR)):
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    with listener, socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as client:
        listener.settimeout(_TIMEOUT_S)
        client.settimeout(_TIMEOUT_S)
        listener.bind((there, 5001))
        listener.listen(1)
        client.bind((here, 5002))
        client.setsockopt(socket.IPPROTO_SCTP, 3, struct.pack("=i", 1))  # SCTP_NODELAY
        client.connect((there, 5001))
        server, _ = listener.accept()
        with server:
            server.settimeout(_TIMEOUT_S)
            for size in _SIZES:
                client.sendall(payload(size))
                _take(server, size)
            if family == socket.AF_INET:
                client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xB8)
            else:
                client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0xB8)
            route = f"{there}/{32 if family == socket.AF_INET else 128} dev {BELOW}"
            ip_batch([f"route add {route} mtu 1300"])
            client.sendall(payload(2900))
            _take(server, 2900)
            ip_batch([f"route delete {route}"])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))


def _tipc(_family: int, here: str, there: str) -> None:
    """Let two nodes discover each other; data between namespaces of one kernel bypass the link."""
    for number, (netns, own, other) in enumerate(((None, here, there), (FAR, there, here))):
        tool(in_netns(netns, ["tipc", "node", "set", "identity", f"node{number}"]))
        udp = f"media udp name nd localip {own} remoteip {other}"
        tool(in_netns(netns, ["tipc", "bearer", "enable", *udp.split()]))
    deadline = time.monotonic() + time_limit(_LINK_S)
    while ":nd" not in (links := tool(["tipc", "link", "list"])) or "up" not in links:
        if time.monotonic() > deadline:
            raise GuestError(f"the TIPC nodes do not discover each other: {links}")
        time.sleep(0.1)
    time.sleep(_TIPC_S)


def record(name: str) -> list[str]:
    """Record one protocol of ``BEARERS``; return its frames as text.

    Raises:
        GuestError, OSError: it cannot be set up.
    """
    set_sysctls()
    kind = BEARERS[name]
    protocol = _sctp if name.startswith("sctp") else _tipc
    with below():
        set_sysctls(FAR)
        with packet_socket(BEYOND, FAR, receive=True) as tap:
            if kind.outer6:
                protocol(socket.AF_INET6, HERE6, THERE6)
            else:
                protocol(socket.AF_INET, HERE4, THERE4)
            frames = take([tap], _QUIET_S)[0]
    # After sorting, nothing is known about which packets share an ID.
    return sorted({Masker(kind).line(frame, vnet) for vnet, frame in frames} - {""})
