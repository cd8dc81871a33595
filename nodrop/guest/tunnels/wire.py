# SPDX-License-Identifier: GPL-2.0-only
"""Packet sockets: what puts a packet into a device, and what sees those that come out of one."""

from __future__ import annotations

import errno
import select
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from nodrop.guest.netns import inside
from nodrop.guest.tunnels.packets import VNET_BYTES, Shot, Vnet

_ALL = 0x0003
_PACKET, _VNET_HDR, _IGNORE_OUTGOING = 263, 15, 23
_ROOM = 1 << 18
_BUFFER = 16 << 20


@dataclass(frozen=True)
class Seen:
    """A frame that a device received.

    Attributes:
        vnet: what is not finished yet: segments, a checksum.
        data: from its link header on, or from its network header where there is none.
    """

    vnet: Vnet
    data: bytes


def _open(device: str, protocol: int, netns: Path | None) -> socket.socket:
    def make() -> socket.socket:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(_PACKET, _VNET_HDR, 1)
        sock.setsockopt(_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        sock.bind((device, protocol))
        return sock

    if netns is None:
        return make()
    with inside(netns):
        return make()


class Inject:
    """Puts packets into a device, through its qdisc; a context manager.

    Args:
        netns: the file of the device's network namespace (None: the caller's).
    """

    def __init__(self, device: str, netns: Path | None = None) -> None:
        self._device = device
        self._socket = _open(device, 0, netns)

    def __enter__(self) -> Inject:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, shot: Shot) -> str:
        """Send a packet; return "" or the name of the error."""
        where = (self._device, shot.protocol, 0, 0, shot.data[:6])
        try:
            self._socket.sendto(shot.vnet.pack() + shot.data, where)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error.errno))
        return ""


class Tap:
    """Sees what a device receives; a context manager."""

    def __init__(self, device: str, netns: Path | None = None) -> None:
        self._socket = _open(device, _ALL, netns)
        self._socket.setblocking(False)

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For select()."""
        return self._socket.fileno()

    def take(self) -> list[Seen]:
        """Return what came since the last call.

        Raises:
            OSError: a frame cannot be told, or came while there was no room for it.
        """
        seen: list[Seen] = []
        while True:
            try:
                data = self._socket.recv(_ROOM)
            except BlockingIOError:
                return seen
            seen.append(Seen(Vnet.unpack(data), data[VNET_BYTES:]))


def wait_quiet(taps: list[Tap], seconds: float, limit: float = 5.0) -> list[list[Seen]]:
    """Take what taps see until there was nothing for some seconds; at most ``limit`` seconds."""
    found: list[list[Seen]] = [[] for _ in taps]
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ready, _, _ = select.select(taps, [], [], seconds)
        if not ready:
            break
        for tap in ready:
            found[taps.index(tap)] += tap.take()
    return found
