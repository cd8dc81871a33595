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


def driver(name: str) -> str:
    """Return the name of a device's driver (``ethtool -i``); EOPNOTSUPP if it has none."""
    return _text(_ioctl(name, struct.pack("=I192x", _GDRVINFO))[4:36])


def stats(name: str) -> dict[str, int]:
    """Return the driver's counters (``ethtool -S``); empty if it has none."""
    try:
        for _ in range(_TRIES):
            names = _strings(name, _SS_STATS)
            if not names:
                return {}
            if values := _values(name, names):
                return values
    except OSError as error:
        # The last queue was detached just now, and without one the driver has no counters.
        if error.errno != errno.EOPNOTSUPP:
            raise
    return {}


def _values(name: str, names: list[str]) -> dict[str, int]:
    raw = _ioctl(name, struct.pack("=II", _GSTATS, len(names)), 8 * (len(names) + _SPARE))
    found: int = struct.unpack_from("=4xI", raw)[0]
    # If a queue was attached or detached meanwhile, the counters of the others keep their places.
    values = struct.unpack_from(f"={min(found, len(names))}Q", raw, 8)
    return dict(zip(names, values, strict=False))


def checksums(name: str) -> bool:
    """Return whether tx-checksumming is on (``ethtool -k``)."""
    return bool(_number(name, _GTXCSUM))


def private_flags(name: str) -> dict[str, bool]:
    """Return the private flags (``ethtool --show-priv-flags``); empty if it has none."""
    names = _strings(name, _SS_PRIV_FLAGS)
    bits = _number(name, _GPFLAGS) if names else 0
    return {flag: bool(bits >> i & 1) for i, flag in enumerate(names)}


def set_private_flag(name: str, flag: str, on: bool) -> None:
    """Set a private flag (``ethtool --set-priv-flags``); EOPNOTSUPP if there is no such flag."""
    names = _strings(name, _SS_PRIV_FLAGS)
    if flag not in names:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name)
    bit = 1 << names.index(flag)
    bits = _number(name, _GPFLAGS)
    _ioctl(name, struct.pack("=II", _SPFLAGS, bits | bit if on else bits & ~bit))


def _number(name: str, command: int) -> int:
    return int(struct.unpack("=4xI", _ioctl(name, struct.pack("=II", command, 0)))[0])


def _strings(name: str, kind: int) -> list[str]:
    """Return a set of strings; empty if the device has no such set."""
    for _ in range(_TRIES):
        count = _count(name, kind)
        if not count:
            return []
        head = struct.pack("=III", _GSTRINGS, kind, count)
        raw = _ioctl(name, head, _STRING * (count + _SPARE))
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


def _ioctl(name: str, head: bytes, extra: int = 0) -> bytes:
    """Return the buffer that begins with ``head``, as the kernel filled it.

    Args:
        extra: bytes behind the head.
    """
    encoded = name.encode(errors="surrogateescape")
    if not 0 < len(encoded) <= _NAME_MAX:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
    data = bytearray(head) + bytearray(extra)
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    request = struct.pack("16sP16x", encoded, address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            fcntl.ioctl(sock, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP and head[:4] == struct.pack("=I", _GSSET_INFO):
                return head[:8] + bytes(12)  # the device has no ethtool operations
            raise OSError(error.errno, os.strerror(error.errno or 0), name) from None
    return bytes(data)
