# SPDX-License-Identifier: GPL-2.0-only
"""A device's driver name, driver counters and private flags, by the ethtool ioctl.

Devices are those of the caller's network namespace. Every function raises OSError: ENODEV
if the device does not exist (any more), EPERM without permission to set something.
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
_SPARE = 256 * 32
"""Spare entries in a buffer: older kernels ignore its size, and write as many entries as the
device has by then."""

_TRIES = 5
"""Attempts: newer kernels return nothing if the number has changed since it was read."""


class Socket(socket.socket):
    """A socket for many requests, with one buffer, which each request overwrites.

    It belongs to the network namespace in which it was created.
    """

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.buffer = bytearray()
        self.address = 0

    def reserve(self, size: int) -> None:
        if size > len(self.buffer):
            self.buffer = bytearray(size)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.buffer))


def driver(name: str, sock: Socket | None = None) -> str:
    """Return the name of a device's driver (``ethtool -i``); EOPNOTSUPP if it has none."""
    return _text(bytes(_ioctl(name, struct.pack("=I192x", _GDRVINFO), sock=sock)[4:36]))


def stats(name: str, sock: Socket | None = None) -> dict[str, int]:
    """Return the driver's counters (``ethtool -S``); empty if it has none."""
    try:
        for _ in range(_TRIES):
            names = _strings(name, _SS_STATS, sock)
            if not names:
                return {}
            if values := _values(name, names, sock):
                return values
    except OSError as error:
        # The last queue was detached just now, and without one the driver has no counters.
        if error.errno != errno.EOPNOTSUPP:
            raise
    return {}


def _values(name: str, names: tuple[str, ...], sock: Socket | None) -> dict[str, int]:
    entries = len(names) + _SPARE
    raw = _ioctl(name, struct.pack("=II", _GSTATS, len(names)), 8 * entries, sock)
    count: int = struct.unpack_from("=4xI", raw)[0]
    # If a queue was attached or detached meanwhile, the counters of the others keep their places.
    values = struct.unpack_from(f"={min(count, len(names))}Q", raw, 8)
    return dict(zip(names, values))


def checksums(name: str, sock: Socket | None = None) -> bool:
    """Return whether tx-checksumming is on (``ethtool -k``)."""
    return bool(_number(name, _GTXCSUM, sock))


def private_flags(name: str, sock: Socket | None = None) -> dict[str, bool]:
    """Return the private flags (``ethtool --show-priv-flags``); empty if it has none."""
    names = _strings(name, _SS_PRIV_FLAGS, sock)
    bits = _number(name, _GPFLAGS, sock) if names else 0
    return {flag: bool(bits >> i & 1) for i, flag in enumerate(names)}


def set_private_flag(name: str, flag: str, on: bool) -> None:
    """Set a private flag (``ethtool --set-priv-flags``); EOPNOTSUPP if there is no such flag."""
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
    """Return a set of strings; empty if the device has no such set."""
    for _ in range(_TRIES):
        count = _count(name, kind, sock)
        if not count:
            break
        head = struct.pack("=III", _GSTRINGS, kind, count)
        raw = _ioctl(name, head, _STRING * (count + _SPARE), sock)
        if returned := min(struct.unpack_from("=8xI", raw)[0], count):
            return _texts(bytes(raw[12 : 12 + _STRING * returned]))
    return ()


def _count(name: str, kind: int, sock: Socket | None) -> int:
    try:
        raw = _ioctl(name, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << kind, 0), sock=sock)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return 0  # the device has no ethtool operations
        raise
    has, count = struct.unpack_from("=8xQI", raw)
    return count if has else 0


@lru_cache
def _texts(raw: bytes) -> tuple[str, ...]:
    """Return the strings in a buffer. Most devices have the same ones, hence the cache."""
    return tuple(_text(raw[at : at + _STRING]) for at in range(0, len(raw), _STRING))


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def _ioctl(name: str, head: bytes, extra: int = 0, sock: Socket | None = None) -> bytearray:
    """Return the socket's buffer, which begins with ``head``, as the kernel filled it.

    Args:
        extra: bytes behind the head.
        sock: None: a new one for this request.
    """
    if sock is None:
        with Socket() as own:
            return _ioctl(name, head, extra, own)
    encoded = name.encode(errors="surrogateescape")
    if not 0 < len(encoded) <= _NAME_MAX:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
    sock.reserve(len(head) + extra)
    sock.buffer[: len(head)] = head
    try:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP16x", encoded, sock.address))
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), name) from None
    return sock.buffer
