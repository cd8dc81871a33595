# SPDX-License-Identifier: GPL-2.0-only
"""Tunnels that are no devices: SCTP over UDP, and TIPC's bearer over UDP."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from nodrop.guest.command import in_netns, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.tunnels.torture import place
from nodrop.guest.tunnels.torture.place import FAR, NEAR
from nodrop.guest.tunnels.torture.traffic import Body, Counts

SCTP_PORT = 9899
TIPC_PORT = 6118
_IPPROTO_SCTP = 132
_PORT = 5000
_SERVICE = 18888
_BYTES = 600
_TIMEOUT_S = 2.0
_PAUSE_S = 0.05
_SCTP = {
    "net/sctp/encap_port": str(SCTP_PORT),
    "net/sctp/udp_port": str(SCTP_PORT),
    # A path that failed is to be tried again soon, ms.
    "net/sctp/rto_initial": "200",
    "net/sctp/rto_min": "100",
    "net/sctp/rto_max": "1000",
    "net/sctp/hb_interval": "500",
}
_Job = tuple[str, int | None, Body]


def set_up(kind: str) -> None:
    """Have both ends speak it; may be repeated.

    Args:
        kind: sctp, sctp6, tipc or tipc6.
    """
    six = kind.endswith("6")
    if kind.startswith("sctp"):
        for netns in (NEAR, FAR):
            place.write(netns, _SCTP)
        return
    here, there = (place.HERE6, place.THERE6) if six else (place.HERE4, place.THERE4)
    for netns, mine, other in ((NEAR, here, there), (FAR, there, here)):
        words = ["tipc", "bearer", "enable", "media", "udp", "name", "ndtipc"]
        words += ["localip", mine, "remoteip", other]
        with suppress(GuestError):  # it is there already
            tool(in_netns(netns, words))


def jobs(kind: str, _value: int) -> list[_Job]:
    """Return a receiver, which comes first, and a sender on each CPU."""
    six = kind.endswith("6")
    if kind.startswith("sctp"):
        return [(FAR, None, _sctp_receiver(six)), *((NEAR, cpu, _sctp(six)) for cpu in range(2))]
    return [(FAR, None, _tipc_receiver()), *((NEAR, cpu, _tipc()) for cpu in range(2))]


def _socket(six: bool) -> socket.socket:
    family = socket.AF_INET6 if six else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, _IPPROTO_SCTP)
    sock.settimeout(_TIMEOUT_S)
    return sock


def _sctp_receiver(six: bool) -> Body:
    def body(counts: Counts, number: int) -> None:
        listener = _socket(six)
        listener.bind((place.THERE6 if six else place.THERE4, _PORT))
        listener.listen(64)
        listener.setblocking(False)
        open_: list[socket.socket] = []
        done = 0
        while True:
            with suppress(OSError):
                peer, _ = listener.accept()
                peer.setblocking(False)
                open_.append(peer)
            idle = True
            for peer in list(open_):
                try:
                    got = peer.recv(1 << 16)
                except BlockingIOError:
                    continue
                except OSError:
                    got = b""
                idle = False
                if not got:
                    peer.close()
                    open_.remove(peer)
                done += bool(got)
            counts.put(number, done, 0)
            if idle:
                time.sleep(0.001)

    return body


def _sctp(six: bool) -> Body:
    def body(counts: Counts, number: int) -> None:
        done = failed = 0
        while True:
            with _socket(six) as sock:
                try:
                    sock.bind((place.HERE6 if six else place.HERE4, 0))
                    sock.connect((place.THERE6 if six else place.THERE4, _PORT))
                    # A new association now and then.
                    for size in range(2000):
                        sock.send(bytes(_BYTES + size % 1000))
                        done += 1
                        counts.put(number, done, failed)
                except OSError:
                    failed += 1
                    counts.put(number, done, failed)
                    time.sleep(_PAUSE_S)

    return body


def _tipc_socket() -> socket.socket:
    sock = socket.socket(socket.AF_TIPC, socket.SOCK_RDM | socket.SOCK_CLOEXEC)
    sock.settimeout(_TIMEOUT_S)
    return sock


def _tipc_receiver() -> Body:
    def body(counts: Counts, number: int) -> None:
        sock = _tipc_socket()
        sock.settimeout(None)
        sock.bind((socket.TIPC_ADDR_NAMESEQ, _SERVICE, 0, 99, socket.TIPC_CLUSTER_SCOPE))
        done = 0
        while True:
            with suppress(OSError):
                sock.recv(1 << 16)
                done += 1
            counts.put(number, done, 0)

    return body


def _tipc() -> Body:
    def body(counts: Counts, number: int) -> None:
        done = failed = 0
        sock = _tipc_socket()
        while True:
            try:
                sock.sendto(bytes(_BYTES), (socket.TIPC_ADDR_NAME, _SERVICE, number, 0))
                done += 1
            except OSError:
                failed += 1
                time.sleep(_PAUSE_S)
            counts.put(number, done, failed)

    return body
