# SPDX-License-Identifier: GPL-2.0-only
"""A device's driver, its own counters and its private flags, by the ethtool ioctl.

Devices are those of the caller's network namespace. Every function raises OSError: ENODEV
when the device is not there (any more), EPERM without the right to set something.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from functools import lru_cache

_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x03
_GTXCSUM = 0x16
_GSTRINGS = 0x1B
_GSTATS = 0x1D
_GPFLAGS = 0x27
_SPFLAGS = 0x28
_GSSET_INFO = 0x37

_SS_STATS = 1
_SS_PRIV_FLAGS = 2

_STRING = 32
_NAME_MAX = 15
_ROOM = 256 * 32
"""Entries that a buffer has room for beyond those that were counted: older kernels write as
many as the device has by then, whatever size the caller tells."""

_TRIES = 5
"""How often to ask: newer kernels give nothing when the number has changed since it was told."""


class Socket(socket.socket):
    """A socket for many requests, with one buffer for the answers; each replaces the last one.

    It belongs to the network namespace that it is made in.
    """

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.buffer = bytearray()
        self.address = 0

    def make_room(self, size: int) -> None:
        """Have a buffer of at least ``size`` bytes."""
        if size > len(self.buffer):
            self.buffer = bytearray(size)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))


def driver(name: str) -> str:
    """Return the name of a device's driver (``ethtool -i``); EOPNOTSUPP when it does not tell."""
    return _text(bytes(_ioctl(name, struct.pack("=I192x", _GDRVINFO))[4:36]))


def stats(name: str, sock: Socket | None = None) -> dict[str, int]:
    """Return the driver's own counters (``ethtool -S``); empty when it has none."""
    try:
        for _ in range(_TRIES):
            names = _strings(name, _SS_STATS, sock)
            if not names:
                return {}
            if values := _values(name, names, sock):
                return values
    except OSError as error:
        # The last queue went just now, and the driver has no counters without one.
        if error.errno != errno.EOPNOTSUPP:
            raise
    return {}


def _values(name: str, names: tuple[str, ...], sock: Socket | None) -> dict[str, int]:
    room = len(names) + _ROOM
    raw = _ioctl(name, struct.pack("=II", _GSTATS, len(names)), 8 * room, sock)
    found: int = struct.unpack_from("=4xI", raw)[0]
    # A queue that came or went in between: the counters of the others keep their places.
    values = struct.unpack_from(f"={min(found, len(names))}Q", raw, 8)
    return dict(zip(names, values, strict=False))


def checksums(name: str, sock: Socket | None = None) -> bool:
    """Whether tx-checksumming is on (``ethtool -k``)."""
    return bool(_number(name, _GTXCSUM, sock))


def private_flags(name: str, sock: Socket | None = None) -> dict[str, bool]:
    """Return the private flags (``ethtool --show-priv-flags``); empty when it has none."""
    names = _strings(name, _SS_PRIV_FLAGS, sock)
    bits = _number(name, _GPFLAGS, sock) if names else 0
    return {flag: bool(bits >> i & 1) for i, flag in enumerate(names)}


def set_private_flag(name: str, flag: str, on: bool) -> None:
    """Set one private flag (``ethtool --set-priv-flags``); EOPNOTSUPP when there is none such."""
    names = _strings(name, _SS_PRIV_FLAGS)
    if flag not in names:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name)
    bit = 1 << names.index(flag)
    bits = _number(name, _GPFLAGS)
    _ioctl(name, struct.pack("=II", _SPFLAGS, bits | bit if on else bits & ~bit))


def _number(name: str, command: int, sock: Socket | None = None) -> int:
    raw = _ioctl(name, struct.pack("=II", command, 0), sock=sock)
    return int(struct.unpack_from("=4xI", raw)[0])


def _strings(name: str, kind: int, sock: Socket | None = None) -> tuple[str, ...]:
    """Return the names of a set of strings; empty when the device has no such set."""
    for _ in range(_TRIES):
        count = _count(name, kind, sock)
        if not count:
            break
        head = struct.pack("=III", _GSTRINGS, kind, count)
        raw = _ioctl(name, head, _STRING * (count + _ROOM), sock)
        if found := min(struct.unpack_from("=8xI", raw)[0], count):
            return _texts(bytes(raw[12 : 12 + _STRING * found]))
    return ()


def _count(name: str, kind: int, sock: Socket | None) -> int:
    try:
        raw = _ioctl(name, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << kind, 0), sock=sock)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return 0  # a device without any ethtool operation
        raise
    has, count = struct.unpack_from("=8xQI", raw)
    return count if has else 0


@lru_cache
def _texts(raw: bytes) -> tuple[str, ...]:
    """Return the strings of a set; most devices have the same."""
    return tuple(_text(raw[at : at + _STRING]) for at in range(0, len(raw), _STRING))


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def _ioctl(name: str, head: bytes, room: int = 0, sock: Socket | None = None) -> bytearray:
    """Return what the kernel made of a request that begins with ``head``: a socket's buffer.

    Args:
        room: bytes for the answer beyond the head.
        sock: None: one for this request.
    """
    if sock is None:
        with Socket() as own:
            return _ioctl(name, head, room, own)
    encoded = name.encode(errors="surrogateescape")
    if not 0 < len(encoded) <= _NAME_MAX:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
    sock.make_room(len(head) + room)
    sock.buffer[: len(head)] = head
    try:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP16x", encoded, sock.address))
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), name) from None
    return sock.buffer
