# SPDX-License-Identifier: GPL-2.0-only
"""Encode and decode netlink messages and attributes (linux/netlink.h)."""

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


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Encode one message, padded."""
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
        """Send a request; return the content of the last message before its acknowledgement.

        Args:
            flags: besides REQUEST and ACK.

        Raises:
            OSError: the kernel's errno.
        """
        self.send(message(kind, REQUEST | ACK | flags, 1, body))
        found = b""
        while True:
            for what, _, content in messages(self.recv(1 << 16)):
                if what == ERROR:
                    raise_for(content)
                    return found
                found = content


def attribute(kind: int, data: bytes) -> bytes:
    """Encode one attribute, padded."""
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind)
    return head + data + bytes(-len(data) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    """Encode an attribute that contains others."""
    return attribute(kind | NESTED, b"".join(parts))


def text(kind: int, word: str) -> bytes:
    """Encode a string attribute."""
    return attribute(kind, word.encode() + b"\0")


def u32(value: int) -> bytes:
    """Encode a number in the machine's byte order."""
    return struct.pack("=I", value)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, content) of each attribute."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _KIND, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
