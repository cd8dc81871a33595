# SPDX-License-Identifier: GPL-2.0-only
"""A device's private flags, as ``ethtool --set-priv-flags`` sets them."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_GPFLAGS = 0x27
_SPFLAGS = 0x28


def _ethtool(name: str, command: int, value: int) -> int:
    data = ctypes.create_string_buffer(struct.pack("II", command, value), 8)
    request = struct.pack("16sQ16x", name.encode(), ctypes.addressof(data))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    return int(struct.unpack("II", data.raw)[1])


def private_flags(name: str) -> int:
    """Return the flags as bits, in the order of ``ethtool --show-priv-flags``.

    Raises:
        OSError: the device is not there or has none.
    """
    return _ethtool(name, _GPFLAGS, 0)


def set_private_flags(name: str, flags: int) -> None:
    """Set all flags; as :func:`private_flags`."""
    _ethtool(name, _SPFLAGS, flags)
