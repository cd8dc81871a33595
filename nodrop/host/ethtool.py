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


def driver(name: str) -> str:
    """Return the name of a device's driver (``ethtool -i``); EOPNOTSUPP when it does not tell."""
    return _text(_ioctl(name, struct.pack("=I192x", _GDRVINFO))[4:36])


def stats(name: str) -> dict[str, int]:
    """Return the driver's own counters (``ethtool -S``); empty when it has none."""
    try:
        for _ in range(_TRIES):
            names = _strings(name, _SS_STATS)
            if not names:
                return {}
            if values := _values(name, names):
                return values
    except OSError as error:
        # The last queue went just now, and the driver has no counters without one.
        if error.errno != errno.EOPNOTSUPP:
            raise
    return {}


def _values(name: str, names: list[str]) -> dict[str, int]:
    room = len(names) + _ROOM
    raw = _ioctl(name, struct.pack("=II", _GSTATS, len(names)), 8 * room)
    found: int = struct.unpack_from("=4xI", raw)[0]
    # A queue that came or went in between: the counters of the others keep their places.
    values = struct.unpack_from(f"={min(found, len(names))}Q", raw, 8)
    return dict(zip(names, values, strict=False))


def checksums(name: str) -> bool:
    """Whether tx-checksumming is on (``ethtool -k``)."""
    return bool(_number(name, _GTXCSUM))


def private_flags(name: str) -> dict[str, bool]:
    """Return the private flags (``ethtool --show-priv-flags``); empty when it has none."""
    names = _strings(name, _SS_PRIV_FLAGS)
    bits = _number(name, _GPFLAGS) if names else 0
    return {flag: bool(bits >> i & 1) for i, flag in enumerate(names)}


def set_private_flag(name: str, flag: str, on: bool) -> None:
    """Set one private flag (``ethtool --set-priv-flags``); EOPNOTSUPP when there is none such."""
    names = _strings(name, _SS_PRIV_FLAGS)
    if flag not in names:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name)
    bit = 1 << names.index(flag)
    bits = _number(name, _GPFLAGS)
    _ioctl(name, struct.pack("=II", _SPFLAGS, bits | bit if on else bits & ~bit))


def _number(name: str, command: int) -> int:
    return int(struct.unpack("=4xI", _ioctl(name, struct.pack("=II", command, 0)))[0])


def _strings(name: str, kind: int) -> list[str]:
    """Return the names of a set of strings; empty when the device has no such set."""
    for _ in range(_TRIES):
        count = _count(name, kind)
        if not count:
            return []
        head = struct.pack("=III", _GSTRINGS, kind, count)
        raw = _ioctl(name, head, _STRING * (count + _ROOM))
        if found := min(struct.unpack_from("=8xI", raw)[0], count):
            parts = (raw[12 + _STRING * i : 12 + _STRING * (i + 1)] for i in range(found))
            return [_text(part) for part in parts]
    return []


def _count(name: str, kind: int) -> int:
    counted = _ioctl(name, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << kind, 0))
    has, count = struct.unpack("=8xQI", counted)
    return count if has else 0


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def _ioctl(name: str, head: bytes, room: int = 0) -> bytes:
    """Return what the kernel made of a request that begins with ``head``.

    Args:
        room: bytes for the answer beyond the head.
    """
    encoded = name.encode(errors="surrogateescape")
    if not 0 < len(encoded) <= _NAME_MAX:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
    data = bytearray(head) + bytearray(room)
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    request = struct.pack("16sP16x", encoded, address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            fcntl.ioctl(sock, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP and head[:4] == struct.pack("=I", _GSSET_INFO):
                return head[:8] + bytes(12)  # a device without any ethtool operation
            raise OSError(error.errno, os.strerror(error.errno or 0), name) from None
    return bytes(data)
