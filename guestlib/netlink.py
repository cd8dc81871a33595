# SPDX-License-Identifier: GPL-2.0-only
"""Netlink messages, attributes and requests (linux/netlink.h, linux/genetlink.h)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

REQUEST, ACK, REPLACE, DUMP, CREATE = 0x1, 0x4, 0x100, 0x300, 0x400
"""Flags of a message."""
ERROR, DONE = 2, 3
"""Message types: the result of a request (see raise_for()), the end of a dump."""
NESTED = 0x8000
"""Flag in an attribute's type: it contains attributes."""
_KIND = 0x3FFF
_MESSAGE = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_GENERIC = 16
_CTRL, _GETFAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_GENERIC_HEAD = struct.Struct("=BBH")


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    head = _MESSAGE.pack(_MESSAGE.size + len(body), kind, flags, sequence, 0)
    return head + body + bytes(-len(body) % 4)


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (type, sequence number, content) of each message in a datagram."""
    at = 0
    while at + _MESSAGE.size <= len(data):
        length, kind, _, sequence, _ = _MESSAGE.unpack_from(data, at)
        yield kind, sequence, data[at + _MESSAGE.size : at + length]
        at += (length + 3) & ~3


def raise_for(content: bytes) -> None:
    """Raise the OSError that an ERROR message reports, unless it is an acknowledgement."""
    if code := -int(struct.unpack_from("=i", content)[0]):
        raise OSError(code, os.strerror(code))


class Requester(socket.socket):
    """A socket for requests, in the caller's network namespace."""

    def __init__(self, protocol: int) -> None:
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self.settimeout(60)

    def request(self, kind: int, body: bytes, flags: int = 0) -> bytes:
        """Send a request; return the content of the last message before its acknowledgement,
        or before the end of the dump.

        Args:
            flags: besides REQUEST and ACK.

        Raises:
            OSError: the kernel's errno.
        """
        self.send(message(kind, REQUEST | ACK | flags, 1, body))
        reply = b""
        while True:
            for what, _, content in messages(self.recv(1 << 16)):
                if what in (ERROR, DONE):
                    raise_for(content)
                    return reply
                reply = content


class GenericFamily(Requester):
    """A socket for requests to one family of generic netlink."""

    def __init__(self, name: str) -> None:
        super().__init__(_GENERIC)
        head = _GENERIC_HEAD.pack(_GETFAMILY, 1, 0)
        reply = self.request(_CTRL, head + text(_FAMILY_NAME, name))
        values = dict(attributes(reply[_GENERIC_HEAD.size :]))
        self._id: int = struct.unpack("=H", values[_FAMILY_ID])[0]

    def command(self, command: int, body: bytes, version: int = 1, flags: int = 0) -> bytes:
        """Send a command; return the attributes in the reply before its acknowledgement.

        Raises:
            OSError: the kernel's errno.
        """
        head = _GENERIC_HEAD.pack(command, version, 0)
        return self.request(self._id, head + body, flags)[_GENERIC_HEAD.size :]


def attribute(kind: int, data: bytes) -> bytes:
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind)
    return head + data + bytes(-len(data) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, word: str) -> bytes:
    return attribute(kind, word.encode() + b"\0")


def u32(value: int) -> bytes:
    """Encode a number in the machine's byte order."""
    return struct.pack("=I", value)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _KIND, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
