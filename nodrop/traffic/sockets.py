# SPDX-License-Identifier: GPL-2.0-only
"""Sockets that send to one address, through one device only, even if routes or its name change."""

from __future__ import annotations

import ipaddress
import socket
from typing import Union

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
CONNECT_S = 1.0
"""Time limit of a TCP connection, seconds."""
_SO_BINDTOIFINDEX = 62
"""Of <asm-generic/socket.h>."""


def connected(
    ifindex: int, address: Address, kind: socket.SocketKind, protocol: int = 0, port: int = 0
) -> socket.socket:
    """Return a blocking socket that is bound to a device and connected.

    Raises:
        OSError: there is no such device, no connection, or no permission (EPERM).
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, ifindex)
        sock.settimeout(CONNECT_S)
        sock.connect((str(address), port))
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock
