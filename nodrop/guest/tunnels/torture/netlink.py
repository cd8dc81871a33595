# SPDX-License-Identifier: GPL-2.0-only
"""Requests to the kernel's netlink families without a process for each."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from nodrop.guest.netlink import ACK, ERROR, REQUEST, attribute, error_of, message, messages

ROUTE, NETFILTER, CRYPTO = 0, 12, 21
_TIMEOUT_S = 30.0


def be32(kind: int, value: int) -> bytes:
    """Return an attribute that holds a number as networks and nf_tables write it."""
    return attribute(kind, struct.pack("!I", value))


class Netlink:
    """A socket to a netlink family, in the namespace it is made in; a context manager."""

    def __init__(self, family: int) -> None:
        self._sequence = 0
        self.socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family
        )
        self.socket.settimeout(_TIMEOUT_S)
        self.socket.bind((0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def request(self, kind: int, flags: int, body: bytes) -> None:
        """Make one request and wait for the kernel's word on it.

        Raises:
            OSError: with the kernel's errno.
        """
        self.requests([(kind, flags | ACK, body)])

    def requests(self, wanted: Sequence[tuple[int, int, bytes]]) -> None:
        """Make several requests at once; wait for those that ask for an ACK.

        Raises:
            OSError: of the first that failed.
        """
        data, waiting = b"", set()
        for kind, flags, body in wanted:
            self._sequence += 1
            if flags & ACK:
                waiting.add(self._sequence)
            data += message(kind, flags | REQUEST, self._sequence, body)
        self.socket.send(data)
        failed = 0
        while waiting:
            for kind, sequence, content in messages(self.socket.recv(1 << 16)):
                if kind != ERROR or sequence > self._sequence:
                    continue
                failed = failed or error_of(content)
                waiting.discard(sequence)
                if failed:
                    waiting.clear()
        if failed:
            raise OSError(failed, os.strerror(failed))
