# SPDX-License-Identifier: GPL-2.0-only
"""Protocols over UDP that need both ends: SCTP, TIPC and AMT.

Only the distinct headers and lengths are recorded, sorted: how often each occurs depends on time.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress

from guestlib.environment import GuestError, set_sysctls, time_limit
from guestlib.namespaces import inside
from guestlib.packets import ip4, payload, udp
from guestlib.process import in_netns, ip_batch, tool
from tunnels.links import AMT_PORT, BEARERS, HERE4, HERE6, IPV4, SCTP_PORT, THERE4, THERE6
from tunnels.masked import Masker
from tunnels.packets import OWN_MAC, VNET
from tunnels.topology import BELOW, BEYOND, FAR, NAME, below, packet_socket, prepare, take

_GROUP, _GROUP_MAC = "239.1.2.3", bytes.fromhex("01005e010203")
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
        with inside(netns):
            set_sysctls(dict.fromkeys(("net/sctp/udp_port", "net/sctp/encap_port"), f"{SCTP_PORT}"))
            # Nothing is lost: retransmissions would only be due to a machine that stands still.
            set_sysctls(dict.fromkeys(("net/sctp/rto_max", "net/sctp/rto_initial"), "3600000"))
            set_sysctls({"net/sctp/rto_min": "3600000"})
    # A packet socket cannot receive SCTP's GSO packets, and segmented ones over UDP are lost.
    tool(["ethtool", "-K", BELOW, "tx-sctp-segmentation", "off", "gso", "off"])
    with inside(FAR):
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


def _multicast(sock: socket.socket, size: int, fragment: int) -> None:
    packet = ip4(udp(size), fragment=fragment, at=("198.18.7.1", _GROUP))
    frame = _GROUP_MAC + OWN_MAC + b"\x08\0" + packet
    sock.sendto(bytes(VNET.size) + frame, (NAME, IPV4, 0, 0, _GROUP_MAC))


def _amt(_family: int, here: str, there: str) -> None:
    """Let a gateway join a group at a relay, and send to the group."""
    ports = f"relay_port {AMT_PORT} gateway_port {AMT_PORT}"
    relay = f"mode relay local {here} dev {BELOW} {ports} max_tunnels 4"
    ip_batch([f"link add {NAME} type amt {relay}", f"link set {NAME} up"])
    gateway = f"mode gateway local {there} discovery {here} dev {BEYOND} {ports}"
    ip_batch([f"link add {NAME} type amt {gateway}", f"link set {NAME} up"], netns=FAR)
    ip_batch([f"address add 198.18.7.2/24 dev {NAME}"], netns=FAR)
    with inside(FAR):
        member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        index = socket.if_nametoindex(NAME)
    with member, packet_socket(NAME) as sock:
        group = struct.pack("=4s4si", socket.inet_aton(_GROUP), bytes(4), index)
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        member.bind((_GROUP, 9))
        member.setblocking(False)
        deadline = time.monotonic() + time_limit(_LINK_S)
        while time.monotonic() < deadline:
            _multicast(sock, 64, 0)
            time.sleep(0.1)
            with suppress(BlockingIOError):
                member.recv(2048)
                break
        else:
            raise GuestError("the AMT gateway does not join the group")
        for size in (0, 1, 100, 1400):
            for fragment in (0, 0x4000):
                _multicast(sock, size, fragment)


_PROTOCOLS = {"sctp": _sctp, "tipc": _tipc, "amt": _amt}


def record(name: str) -> list[str]:
    """Record one protocol of ``BEARERS``; return its frames as text.

    Raises:
        GuestError, OSError: it cannot be set up.
    """
    prepare()
    kind = BEARERS[name]
    protocol = _PROTOCOLS[name.removesuffix("6")]
    with below():
        prepare(FAR)
        with packet_socket(BEYOND, FAR, receive=True) as tap:
            if kind.outer6:
                protocol(socket.AF_INET6, HERE6, THERE6)
            else:
                protocol(socket.AF_INET, HERE4, THERE4)
            frames = take([tap], _QUIET_S)[0]
    # After sorting, nothing is known about which packets share an ID.
    return sorted({Masker(kind).line(frame, vnet) for vnet, frame in frames} - {""})
