# SPDX-License-Identifier: GPL-2.0-only
"""Generic netlink: requests to a family of the kernel (linux/genetlink.h)."""

from __future__ import annotations

import socket
import struct

from proof.netlink import ACK, ERROR, REQUEST, attributes, message, messages, raise_for, text

_NETLINK_GENERIC = 16
_CTRL, _GETFAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2


class Family(socket.socket):
    """A socket for requests to one family, in the caller's network namespace."""

    def __init__(self, name: str) -> None:
        super().__init__(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        self.settimeout(60)
        reply = self._request(_CTRL, _GETFAMILY, 1, text(_FAMILY_NAME, name))
        self._id = struct.unpack("=H", dict(attributes(reply))[_FAMILY_ID])[0]

    def request(self, command: int, body: bytes, version: int = 1) -> bytes:
        """Send a request; return the attributes in the reply before its acknowledgement.

        Raises:
            OSError: the kernel's errno.
        """
        return self._request(self._id, command, version, body)

    def _request(self, family: int, command: int, version: int, body: bytes) -> bytes:
        head = struct.pack("=BBH", command, version, 0)
        self.send(message(family, REQUEST | ACK, 1, head + body))
        found = b""
        while True:
            for what, _, content in messages(self.recv(1 << 16)):
                if what == ERROR:
                    raise_for(content)
                    return found
                found = content[4:]
