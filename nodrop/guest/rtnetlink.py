# SPDX-License-Identifier: GPL-2.0-only
"""Links, addresses and qdiscs by rtnetlink, without a process for each request.

For programs that change a device hundreds of times a second; ``ip`` and ``tc`` do for others.
Every request raises OSError with the kernel's errno.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from nodrop.guest.netlink import (
    ACK,
    CREATE,
    DONE,
    DUMP,
    ERROR,
    EXCLUSIVE,
    REPLACE,
    REQUEST,
    attribute,
    attributes,
    message,
    messages,
    nested,
    raise_for,
    text,
    u32,
)
from nodrop.guest.netns import inside

NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR, NEWNEIGH = 20, 28
NEWQDISC, DELQDISC, GETQDISC = 36, 37, 38
NEWTCLASS = 40
GETSTATS = 94
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBi")
_STATS = struct.Struct("=BxxxII")
_TC = struct.Struct("=BxxxiIII")

UP, NOARP, ALLMULTI = 0x1, 0x80, 0x200
"""IFF_UP, IFF_NOARP, IFF_ALLMULTI."""

_HARDWARE, _NAME, _LOWER, _MASTER, _TXQLEN, _INFO = 1, 3, 5, 10, 13, 18
_NETNS_FD = 28
_INFO_KIND, _INFO_DATA = 1, 2
_LINK_64, _LINK_64_MASK = 1, 1
_ADDR, _LOCAL = 1, 2
_KIND, _OPTIONS, _STATS2 = 1, 2, 7
_STATS_QUEUE = 3
ROOT = 0xFFFFFFFF
_HTB_PARMS, _HTB_INIT, _HTB_DIRECT_QLEN = 1, 2, 5
_HTB_QLEN = 1000
"""Packets; by itself a leaf would hold as many as the device's ring, none for 0."""
_TBF_PARMS, _TBF_BURST = 1, 6
_PERMANENT = 0x80
"""NUD_PERMANENT."""
_TIMEOUT_S = 60


@dataclass(frozen=True)
class LinkStats:
    """Packets of a device: read by its reader, written by it, and what it dropped of both."""

    tx_packets: int
    rx_packets: int
    tx_dropped: int
    rx_dropped: int


def _tbf() -> bytes:
    """2 MB/s and bursts of 20 kB; Ethernet's overhead is looked at, so that there is no table."""
    rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, 2 * 10**6)
    parms = rate + bytes(len(rate)) + struct.pack("=3I", 10**8, 0, 0)
    return attribute(_TBF_PARMS, parms) + attribute(_TBF_BURST, u32(20_000))


def _netem() -> bytes:
    """A millisecond, in units of 64 ns, and room for many."""
    return struct.pack("=6I", 10**6 // 64, 10**5, 0, 0, 0, 0)


def _htb_class() -> bytes:
    """A class that never has to wait: 1 GB/s, Ethernet's overhead is not looked at."""
    rate = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, 10**9)
    return attribute(_HTB_PARMS, rate + rate + struct.pack("=5I", 10**6, 10**6, 10**5, 0, 0))


class Rtnetlink:
    """A socket to rtnetlink, in one network namespace for good; a context manager.

    Args:
        netns: the file of the namespace; None: the caller's.
    """

    def __init__(self, netns: Path | None = None) -> None:
        self._sequence = 0
        if netns is None:
            self._socket = self._open()
            return
        with inside(netns):
            self._socket = self._open()

    @staticmethod
    def _open() -> socket.socket:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        sock.settimeout(_TIMEOUT_S)
        return sock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def index(self, name: str) -> int:
        """Return the index of a device."""
        body = _LINK.pack(0, 0, 0, 0, 0) + text(3, name)
        for content in self._request(GETLINK, 0, body):
            return int(_LINK.unpack_from(content)[2])
        raise OSError(19, os.strerror(19), name)

    def set_flags(self, index: int, flags: int, mask: int) -> None:
        """Set flags of a device: UP, NOARP."""
        self._request(NEWLINK, 0, _LINK.pack(0, 0, index, flags, mask))

    def set_txqueuelen(self, index: int, slots: int) -> None:
        """Set the length of a device's ring."""
        body = _LINK.pack(0, 0, index, 0, 0) + attribute(_TXQLEN, u32(slots))
        self._request(NEWLINK, 0, body)

    def move(self, index: int, netns_fd: int) -> None:
        """Move a device into another network namespace, which an open file stands for."""
        body = _LINK.pack(0, 0, index, 0, 0) + attribute(_NETNS_FD, u32(netns_fd))
        self._request(NEWLINK, 0, body)

    def delete(self, index: int) -> None:
        """Delete a device, whoever has it open."""
        self._request(DELLINK, 0, _LINK.pack(0, 0, index, 0, 0))

    def add_address(self, index: int, here: str, there: str) -> None:
        """Give a device an IPv4 address and its peer's."""
        body = _ADDRESS.pack(socket.AF_INET, 32, 0, 0, index)
        body += attribute(_LOCAL, socket.inet_aton(here))
        body += attribute(_ADDR, socket.inet_aton(there))
        self._request(NEWADDR, CREATE | REPLACE, body)

    def add_neighbour(self, index: int, address: str, mac: bytes) -> None:
        """Say for good which hardware has an IPv4 address behind a device."""
        body = struct.pack("=BxxxiHBB", socket.AF_INET, index, _PERMANENT, 0, 0)
        body += attribute(1, socket.inet_aton(address)) + attribute(2, mac)
        self._request(NEWNEIGH, CREATE | REPLACE, body)

    def add_link(
        self,
        name: str,
        kind: str,
        lower: int = 0,
        data: bytes = b"",
        mac: bytes = b"",
        ring: int = -1,
    ) -> int:
        """Make a device and return its index.

        Args:
            lower: the index of the device below it, 0: none.
            data: the attributes of its kind, such as a VLAN's number.
            mac: its hardware address, empty: the kernel's choice.
            ring: its txqueuelen, -1: the kernel's choice.
        """
        info = text(_INFO_KIND, kind)
        if data:
            info += nested(_INFO_DATA, data)
        body = _LINK.pack(0, 0, 0, 0, 0) + text(_NAME, name) + nested(_INFO, info)
        if lower:
            body += attribute(_LOWER, u32(lower))
        if mac:
            body += attribute(_HARDWARE, mac)
        if ring >= 0:
            body += attribute(_TXQLEN, u32(ring))
        self._request(NEWLINK, CREATE | EXCLUSIVE, body)
        return self.index(name)

    def set_master(self, index: int, master: int) -> None:
        """Make a device a port of a bridge; 0: of none."""
        body = _LINK.pack(0, 0, index, 0, 0) + attribute(_MASTER, u32(master))
        self._request(NEWLINK, 0, body)

    def stats(self, index: int) -> LinkStats:
        """Return the counters of a device."""
        for content in self._request(GETSTATS, 0, _STATS.pack(0, index, _LINK_64_MASK)):
            for kind, data in attributes(content[_STATS.size :]):
                if kind == _LINK_64:
                    rx, tx, *_, rx_dropped, tx_dropped = struct.unpack_from("=8Q", data)
                    return LinkStats(tx, rx, tx_dropped, rx_dropped)
        raise OSError(19, os.strerror(19))

    def replace_qdisc(self, index: int, words: str) -> None:
        """Give a device another root qdisc; to have it anew, too.

        Args:
            words: "pfifo N" (packets), "htb" with one class, "tbf" of 2 MB/s, "netem" of a
                millisecond, another kind without options, or "default": what the kernel takes by
                itself.
        """
        kind, _, limit = words.partition(" ")
        if kind == "default":
            with suppress(FileNotFoundError):
                self._request(DELQDISC, 0, _TC.pack(0, index, 0, ROOT, 0))
            return
        options = b""
        if limit:
            options = attribute(_OPTIONS, u32(int(limit)))
        elif kind == "tbf":
            options = nested(_OPTIONS, _tbf())
        elif kind == "netem":
            options = attribute(_OPTIONS, _netem())
        elif kind == "htb":
            glob = attribute(_HTB_INIT, struct.pack("=5I", 3, 10, 1, 0, 0))
            options = attribute(_OPTIONS, glob + attribute(_HTB_DIRECT_QLEN, u32(_HTB_QLEN)))
        # Without a handle that is new the kernel would change the qdisc that is there.
        handle = self._handle() if kind != "noqueue" else 0
        body = _TC.pack(0, index, handle, ROOT, 0) + text(_KIND, kind)
        self._request(NEWQDISC, CREATE | REPLACE, body + options)
        if kind == "htb":
            body = _TC.pack(0, index, handle | 1, handle, 0)
            body += attribute(_KIND, b"htb\0") + attribute(_OPTIONS, _htb_class())
            self._request(NEWTCLASS, CREATE | REPLACE, body)
            body = _TC.pack(0, index, 0, handle | 1, 0) + attribute(_KIND, b"pfifo\0")
            body += attribute(_OPTIONS, u32(_HTB_QLEN))
            self._request(NEWQDISC, CREATE | REPLACE, body)

    def _handle(self) -> int:
        return (1 + self._sequence % 0x7000) << 16

    def queued(self, index: int) -> int:
        """Return how many packets wait in a device's qdiscs."""
        return self._queue(index)[0]

    def qdisc_drops(self, index: int) -> int:
        """Return how many packets a device's qdiscs have dropped since they were made."""
        return self._queue(index)[1]

    def _queue(self, index: int) -> tuple[int, int]:
        waiting = drops = 0
        for content in self._request(GETQDISC, DUMP, _TC.pack(0, index, 0, 0, 0)):
            _, device, _, parent, _ = _TC.unpack_from(content)
            if device != index or parent != ROOT:
                continue
            for kind, data in attributes(content[_TC.size :]):
                if kind != _STATS2:
                    continue
                for inner, queue in attributes(data):
                    if inner == _STATS_QUEUE:
                        length, _, dropped = struct.unpack_from("=3I", queue)
                        waiting, drops = waiting + length, drops + dropped
        return waiting, drops

    def _request(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request and return the contents of the messages that answer it."""
        self._sequence += 1
        dump = flags & DUMP == DUMP and kind in (GETLINK, GETQDISC)
        flags |= REQUEST | (0 if dump else ACK)
        self._socket.send(message(kind, flags, self._sequence, body))
        found: list[bytes] = []
        while True:
            for what, sequence, content in messages(self._socket.recv(1 << 17)):
                if sequence != self._sequence:
                    continue
                if what == ERROR:
                    raise_for(content)
                if what in (ERROR, DONE):
                    return found
                found.append(content)
