# SPDX-License-Identifier: GPL-2.0-only
"""Generic netlink: requests to a family of the kernel (linux/genetlink.h)."""

from __future__ import annotations

import struct

from proof.netlink import Requester, attributes, text

_NETLINK_GENERIC = 16
_CTRL, _GETFAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2
_HEAD = struct.Struct("=BBH")


class Family(Requester):
    """A socket for requests to one family."""

    def __init__(self, name: str) -> None:
        super().__init__(_NETLINK_GENERIC)
        head = _HEAD.pack(_GETFAMILY, 1, 0)
        reply = self.request(_CTRL, head + text(_FAMILY_NAME, name))
        found = dict(attributes(reply[_HEAD.size :]))
        self._id: int = struct.unpack("=H", found[_FAMILY_ID])[0]

    def command(self, command: int, body: bytes, version: int = 1) -> bytes:
        """Send a command; return the attributes in the reply before its acknowledgement.

        Raises:
            OSError: the kernel's errno.
        """
        return self.request(self._id, _HEAD.pack(command, version, 0) + body)[_HEAD.size :]
