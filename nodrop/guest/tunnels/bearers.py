# SPDX-License-Identifier: GPL-2.0-only
"""Protocols that are carried by UDP without a device: SCTP and TIPC. Their packets are recorded."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from nodrop.guest.command import ip_batch, netns_path, tool
from nodrop.guest.failure import GuestError
from nodrop.guest.netns import inside
from nodrop.guest.slow import patience
from nodrop.guest.tunnels.kinds import HERE4, HERE6, SCTP_PORT, THERE4, THERE6
from nodrop.guest.tunnels.packets import payload
from nodrop.guest.tunnels.stage import SETTINGS, counters, set_sysctls
from nodrop.guest.tunnels.topology import BELOW, BEYOND, FAR, Lower, below
from nodrop.guest.tunnels.wire import Tap, wait_quiet

_SIZES = (1, 10, 1000, 1380, 1400, 1452, 3000, 9000)
_QUIET_S = 0.06
_TIMEOUT_S = 60.0
_LINK_S = 20.0
_TIPC_BEARER = "nd"
_TIPC_S = 3.0
"""Seconds in which links are looked after."""
Step = dict[str, Any]


class _Steps:
    """Records what a protocol sends."""

    def __init__(self, tap: Tap) -> None:
        self.steps: list[Step] = []
        self._tap = tap

    def step(self, name: str, result: str = "") -> None:
        """Record what was caused by what was just done."""
        seen = wait_quiet([self._tap], _QUIET_S)[0]
        self.steps.append(
            {
                "name": name,
                "results": [result],
                "out": [[one.vnet.pack().hex(), one.data.hex()] for one in seen],
                "back": [],
                "forwarded-back": [],
                "counters": counters(),
            }
        )

    def tried(self, name: str, do: Callable[[], object]) -> None:
        """Do something and record it, with the name of its error."""
        result = ""
        try:
            do()
        except OSError as error:
            result = errno.errorcode.get(error.errno or 0, str(error))
        self.step(name, result)


def _take(server: socket.socket, size: int) -> None:
    """Wait for a message: the rest of it may have to wait for an acknowledgement."""
    while size > 0:
        data = server.recv(1 << 16)
        if not data:
            raise GuestError("the association ended")
        size -= len(data)


def _sctp(on: _Steps, family: int) -> None:
    here, there = (HERE4, THERE4) if family == socket.AF_INET else (HERE6, THERE6)
    settings = {"net/sctp/udp_port": str(SCTP_PORT), "net/sctp/encap_port": str(SCTP_PORT)}
    set_sysctls(settings)
    set_sysctls(settings, FAR)

    def made() -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
        sock.settimeout(_TIMEOUT_S)
        return sock

    with inside(netns_path(FAR)):
        listener = made()
    # No packet socket can tell of SCTP's segments.
    tool(["ethtool", "-K", BELOW, "tx-sctp-segmentation", "off"])
    with listener, made() as client:
        listener.bind((there, 5001))
        listener.listen(1)
        client.bind((here, 5002))
        client.setsockopt(socket.IPPROTO_SCTP, 3, struct.pack("=i", 1))  # SCTP_NODELAY
        on.tried("connect", lambda: client.connect((there, 5001)))
        server, _ = listener.accept()
        with server:
            server.settimeout(_TIMEOUT_S)
            for size in _SIZES:
                client.sendall(payload(size))
                _take(server, size)
                on.step(f"message of {size}")
            level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
            option = socket.IP_TOS if family == socket.AF_INET else socket.IPV6_TCLASS
            client.setsockopt(level, option, 0xB8)
            client.sendall(payload(100))
            _take(server, 100)
            on.step("message with a class")
            full = f"{there}/{32 if family == socket.AF_INET else 128}"
            ip_batch([f"route add {full} dev {BELOW} mtu 1300"])
            client.sendall(payload(3000))
            _take(server, 3000)
            on.step("message over another route")
            ip_batch([f"route delete {full}"])
            client.sendall(payload(3000))
            _take(server, 3000)
            on.step("message over the first one")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
            client.close()
            on.step("abort")


def _tipc(on: _Steps, family: int) -> None:
    """Two nodes find each other; data between namespaces of one kernel takes a shorter way."""
    here, there = (HERE4, THERE4) if family == socket.AF_INET else (HERE6, THERE6)
    for at, (own, other) in enumerate(((here, there), (there, here))):
        words = ["ip", "netns", "exec", FAR] if at else []
        tool([*words, "tipc", "node", "set", "identity", f"node{at}"])
        udp = ["media", "udp", "name", _TIPC_BEARER, "localip", own, "remoteip", other]
        tool([*words, "tipc", "bearer", "enable", *udp])
    deadline = time.monotonic() + patience(_LINK_S)
    while f":{_TIPC_BEARER}" not in (links := tool(["tipc", "link", "list"])) or "up" not in links:
        if time.monotonic() > deadline:
            raise GuestError(f"the ends of TIPC do not find each other: {links}")
        time.sleep(0.1)
    time.sleep(_TIPC_S)
    on.step("two nodes")
    # When it is sent, and how often, is the clock's: one of each sort is kept.
    step = on.steps[-1]
    head = 14 + (28 if family == socket.AF_INET else 48)
    sorts = {(len(data), data[2 * head : 2 * head + 2]): (vnet, data) for vnet, data in step["out"]}
    step |= {"out": [list(sorts[one]) for one in sorted(sorts)], "counters": {}}


@contextmanager
def _stage() -> Iterator[_Steps]:
    set_sysctls(SETTINGS)
    with ExitStack() as stack:
        stack.enter_context(below(Lower.VETH, 1500))
        set_sysctls(SETTINGS, FAR)
        yield _Steps(stack.enter_context(Tap(BEYOND, netns_path(FAR))))


_PROTOCOLS: Mapping[str, tuple[Callable[[_Steps, int], None], int]] = {
    "sctp": (_sctp, socket.AF_INET),
    "sctp6": (_sctp, socket.AF_INET6),
    "tipc": (_tipc, socket.AF_INET),
    "tipc6": (_tipc, socket.AF_INET6),
}


def record(name: str) -> list[Step]:
    """Record one protocol: ``sctp``, ``sctp6``, ``tipc`` or ``tipc6``.

    Raises:
        GuestError, OSError: it cannot be set up.
    """
    protocol, family = _PROTOCOLS[name]
    with _stage() as on:
        protocol(on, family)
        return on.steps
