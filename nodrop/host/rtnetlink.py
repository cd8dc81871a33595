# SPDX-License-Identifier: GPL-2.0-only
"""Links, their root qdiscs, and routes, by rtnetlink: requests, and events of the kernel.

Sockets belong to the network namespace in which they were created.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NEWLINK, _GETLINK = 16, 18
_NEWROUTE, _GETROUTE = 24, 26
_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_REQUEST, _ACK, _ECHO, _DUMP = 0x001, 0x004, 0x008, 0x300
_REPLACE, _CREATE = 0x100, 0x400
_IFLA_IFNAME, _IFLA_QDISC, _IFLA_LINKINFO, _IFLA_NUM_TX_QUEUES = 3, 6, 18, 31
_IFLA_ALT_IFNAME = 53
_INFO_KIND = _TCA_KIND = _RTA_DST = 1
_TCA_OPTIONS = 2
_RTA_OIF = 4
_UNICAST = 1
_ROOT = 0xFFFFFFFF
_GROUPS = 1 << 0 | 1 << 3
"""RTNLGRP_LINK and RTNLGRP_TC, as a mask."""
_HEAD, _LINK, _TC = struct.Struct("=IHHII"), struct.Struct("=BxHiII"), struct.Struct("=BxxxiIII")
_ROUTE = struct.Struct("=BBxxxxxBxxxx")
_TYPE = 0x3FFF
"""Without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER."""


class Link(NamedTuple):
    """A network device.

    Attributes:
        kind: of ``ip -d link``: "tun" for TUN and TAP; "" for a physical device.
        qdisc: kind of its root qdisc.
        tx_queues: how many queues it may have.
    """

    ifindex: int
    name: str
    kind: str
    qdisc: str
    tx_queues: int


class Requests(socket.socket):
    """A socket for requests, each of which waits for its reply.

    All methods raise OSError: ENODEV if the device does not exist (any more), EPERM without
    CAP_NET_ADMIN to change something.
    """

    def __init__(self) -> None:
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._sequence = 0

    def links(self) -> list[Link]:
        """Return all links."""
        replies = self._ask(_GETLINK, _DUMP, _LINK.pack(0, 0, 0, 0, 0))
        return [_link(body) for kind, body in replies if kind == _NEWLINK]

    def link(self, index: int) -> Link:
        """Return a link."""
        replies = self._ask(_GETLINK, _ACK, _LINK.pack(0, 0, index, 0, 0))
        return next(_link(body) for kind, body in replies if kind == _NEWLINK)

    def named(self, name: str) -> Link:
        """Return the link that has this name or alternative name, of at most 127 bytes."""
        body = _LINK.pack(0, 0, 0, 0, 0) + _attribute(_IFLA_ALT_IFNAME, name)
        replies = self._ask(_GETLINK, _ACK, body)
        return next(_link(body) for kind, body in replies if kind == _NEWLINK)

    def root_handle(self, index: int) -> int:
        """Return the handle of a link's root qdisc; 0: one that the kernel chose."""
        with suppress(OSError):  # no qdisc that it reports
            for kind, body in self._ask(_GETQDISC, _ACK | _ECHO, _TC.pack(0, index, 0, _ROOT, 0)):
                if kind == _NEWQDISC:
                    handle: int = _TC.unpack_from(body)[2]
                    return handle
        return 0

    def route(self, address: bytes) -> int:
        """Return the index of the device to which packets to a packed address go.

        0: they go to no other host, or to several. OSError also if there is no route.
        """
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        to = struct.pack("=HH", 4 + len(address), _RTA_DST) + address
        replies = self._ask(_GETROUTE, _ACK, _ROUTE.pack(family, 8 * len(address), 0) + to)
        route = next(body for kind, body in replies if kind == _NEWROUTE)
        device = _attributes(route[_ROUTE.size :]).get(_RTA_OIF, bytes(4))
        return struct.unpack("=I", device)[0] if _ROUTE.unpack_from(route)[2] == _UNICAST else 0

    def replace_root(
        self, index: int, kind: str, handle: int, options: Mapping[int, int] | None = None
    ) -> None:
        """Replace the root qdisc of a link.

        Args:
            options: those that are not its defaults, 32-bit values by the attribute's number.
        """
        body = _TC.pack(0, index, handle, _ROOT, 0) + _attribute(_TCA_KIND, kind)
        if options:
            nested = b"".join(struct.pack("=HHI", 8, *item) for item in options.items())
            body += struct.pack("=HH", 4 + len(nested), _TCA_OPTIONS) + nested
        list(self._ask(_NEWQDISC, _ACK | _CREATE | _REPLACE, body))

    def _ask(self, kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
        self._sequence += 1
        size = _HEAD.size + len(body)
        self.send(_HEAD.pack(size, kind, _REQUEST | flags, self._sequence, 0) + body)
        while True:
            for got, sequence, content in _messages(self.recv(1 << 17)):
                if sequence != self._sequence:
                    continue  # of an earlier request that was not read to its end
                if got == _NLMSG_DONE:
                    return
                if got == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", content)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    return
                yield got, content


class Events(socket.socket):
    """A socket that gets the kernel's messages about links and qdiscs."""

    def __init__(self) -> None:
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self.bind((0, _GROUPS))

    def read(self) -> set[int] | None:
        """Return the indexes of TUN and TAP devices, and of devices whose root qdisc changed.

        Does not block. None: messages were lost, so any link may have changed.
        """
        changed: set[int] = set()
        lost = False
        while True:
            try:
                data = self.recv(1 << 17, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None if lost else changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                lost = True
                continue
            for kind, _, body in _messages(data):
                if kind == _NEWLINK and _link(body).kind == "tun":
                    changed.add(_LINK.unpack_from(body)[2])
                elif kind in (_NEWQDISC, _DELQDISC) and _TC.unpack_from(body)[3] == _ROOT:
                    changed.add(_TC.unpack_from(body)[1])


def _attribute(kind: int, text: str) -> bytes:
    value = text.encode(errors="surrogateescape") + b"\0"
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, sequence number and body of each message."""
    while len(data) >= _HEAD.size:
        size, kind, _, sequence, _ = _HEAD.unpack_from(data)
        if size < _HEAD.size:
            return
        yield kind, sequence, data[_HEAD.size : size]
        data = data[size + -size % 4 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes: dict[int, bytes] = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        if size < 4:
            break
        attributes[kind & _TYPE] = data[4:size]
        data = data[size + -size % 4 :]
    return attributes


def _link(body: bytes) -> Link:
    attributes = _attributes(body[_LINK.size :])
    info = _attributes(attributes.get(_IFLA_LINKINFO, b""))
    queues = attributes.get(_IFLA_NUM_TX_QUEUES, b"\1\0\0\0")
    return Link(
        ifindex=_LINK.unpack_from(body)[2],
        name=_text(attributes.get(_IFLA_IFNAME, b"")),
        kind=_text(info.get(_INFO_KIND, b"")),
        qdisc=_text(attributes.get(_IFLA_QDISC, b"")),
        tx_queues=struct.unpack("=I", queues)[0],
    )


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="surrogateescape")
