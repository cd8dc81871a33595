# SPDX-License-Identifier: GPL-2.0-only
"""Packets that sockets send through a tunnel, and the errors that they get back."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nodrop.guest.command import netns_path
from nodrop.guest.netns import inside
from nodrop.guest.tunnels.kinds import INNER4, INNER6, IPV4
from nodrop.guest.tunnels.packets import OWN4, OWN6, payload
from nodrop.guest.tunnels.stage import Stage, far_drops
from nodrop.guest.tunnels.topology import FAR

_IP_MTU_DISCOVER, _IP_RECVERR, _IP_OPTIONS = 10, 11, 4
_IPV6_MTU_DISCOVER, _IPV6_RECVERR = 23, 25
_SOL_UDP, _UDP_SEGMENT = 17, 103
_DISCOVER = {"dont": 0, "want": 1, "do": 2, "probe": 3}
_ERROR = struct.Struct("=IBBBBII")
_ERROR_QUEUE = 0x2000
_TCP_BYTES = 2600
_MOST_ERRORS = 16
_TIMEOUT_S = 60.0
_STALL_S, _ACKNOWLEDGED_S = 2.5, 0.1
"""Less than a sender waits before it sends again, see SETTINGS."""
_ports = iter(range(40000, 60000))


def _name(code: int) -> str:
    return errno.errorcode.get(code, str(code))


@contextmanager
def _datagrams(family: int, discover: str) -> Iterator[socket.socket]:
    """A socket whose port tells its flow, and that keeps its errors."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(_TIMEOUT_S)
        if family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DISCOVER[discover])
            sock.bind((OWN4, 3000))
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _DISCOVER[discover])
            sock.bind((OWN6, 3000))
        yield sock


def _errors(sock: socket.socket) -> list[str]:
    """Return what the socket's error queue holds: errno, origin, type, code, info."""
    found: list[str] = []
    sock.setblocking(False)
    for _ in range(_MOST_ERRORS):
        try:
            _, ancillary, _, _ = sock.recvmsg(1, 512, _ERROR_QUEUE)
        except BlockingIOError:
            break
        except OSError as error:  # the socket's own one, once
            found.append(_name(error.errno or 0))
            continue
        for _, kind, data in ancillary:
            if kind in (_IP_RECVERR, _IPV6_RECVERR) and len(data) >= _ERROR.size:
                code, origin, what, detail, _, info, _ = _ERROR.unpack_from(data)
                found.append(f"{_name(code)} {origin} {what} {detail} {info}")
    sock.settimeout(_TIMEOUT_S)
    return found


def _send(sock: socket.socket, count: int, target: str) -> str:
    try:
        sock.sendto(payload(count), (target, 9))
    except OSError as error:
        return _name(error.errno or 0)
    return ""


def sockets(on: Stage, mtu: int, prefix: str = "") -> None:
    """Send from UDP and TCP sockets.

    Args:
        mtu: of the tunnel's device at first.
    """
    for protocol in on.kind.carries:
        family = socket.AF_INET if protocol == IPV4 else socket.AF_INET6
        _sizes(on, family, mtu, prefix)
        _options(on, family, prefix)
        _tcp(on, family, prefix)


def _target(family: int) -> str:
    return INNER4 if family == socket.AF_INET else INNER6


def _sizes(on: Stage, family: int, mtu: int, prefix: str) -> None:
    head = 28 if family == socket.AF_INET else 48
    digit = "4" if family == socket.AF_INET else "6"
    for discover in _DISCOVER:
        with _datagrams(family, discover) as sock:
            for size in (100, mtu - head, mtu - head + 1, 2000, 4000):
                result = _send(sock, size, _target(family))
                on.step(f"{prefix}socket {digit} {discover} {size}", [result])
                on.steps[-1]["errors"] = _errors(sock)


def _options(on: Stage, family: int, prefix: str) -> None:
    digit = "4" if family == socket.AF_INET else "6"
    level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
    tos = socket.IP_TOS if family == socket.AF_INET else socket.IPV6_TCLASS
    ttl = socket.IP_TTL if family == socket.AF_INET else socket.IPV6_UNICAST_HOPS
    for what, option, value in (("tos", tos, 0xBA), ("ttl", ttl, 3)):
        with _datagrams(family, "want") as sock:
            sock.setsockopt(level, option, value)
            on.step(f"{prefix}socket {digit} {what}", [_send(sock, 100, _target(family))])
    if family == socket.AF_INET:
        with _datagrams(family, "want") as sock:
            sock.setsockopt(level, _IP_OPTIONS, b"\x94\x04\0\0")
            on.step(f"{prefix}socket 4 options", [_send(sock, 100, _target(family))])
    for segment in (500, 1200):
        with _datagrams(family, "want") as sock:
            sock.setsockopt(_SOL_UDP, _UDP_SEGMENT, segment)
            result = _send(sock, 3 * segment + 7, _target(family))
            on.step(f"{prefix}socket {digit} segments {segment}", [result])


def _tcp(on: Stage, family: int, prefix: str) -> None:
    """A TCP connection to the far end, which answers for once.

    It may stall: not every tunnel tells TCP that its packets do not fit.
    """
    far_drops(on.kind, False)
    try:
        stalled = _stream(family, next(_ports))
        digit = "4" if family == socket.AF_INET else "6"
        on.step(f"{prefix}tcp {digit}", [stalled])
    finally:
        far_drops(on.kind, True)


def _stream(family: int, port: int) -> str:
    """Send to the far end, then reset; return where it stalled, or ""."""
    own, other = (OWN4, INNER4) if family == socket.AF_INET else (OWN6, INNER6)
    with inside(netns_path(FAR)):
        listener = socket.create_server((other, port), family=family)
    with listener, socket.socket(family, socket.SOCK_STREAM) as client:
        listener.settimeout(_STALL_S)
        client.settimeout(_STALL_S)
        client.bind((own, port))
        # A reset: who acknowledges whose end, and with what, is a matter of time.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        try:
            client.connect((other, port))
            server, _ = listener.accept()
        except TimeoutError:
            return "connect"
        with server:
            server.settimeout(_STALL_S)
            client.sendall(payload(_TCP_BYTES))
            got = 0
            try:
                while got < _TCP_BYTES and (data := server.recv(1 << 16)):
                    got += len(data)
            except TimeoutError:
                return f"after {got}"
            time.sleep(_ACKNOWLEDGED_S)  # what comes after the reset would be answered
            client.close()
    return "" if got == _TCP_BYTES else f"{got} bytes"
