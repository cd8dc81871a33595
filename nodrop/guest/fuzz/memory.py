# SPDX-License-Identifier: GPL-2.0-only
"""Where in a program's memory each call has what it hands to the kernel."""

from __future__ import annotations

from collections.abc import Mapping

from nodrop.guest.fuzz.program import Ref, Where
from nodrop.guest.fuzz.wire import MEMORY, MEMORY_LEN, Raw

PAGE = 4096
_BULK, _ROOM = MEMORY + 0x40000, MEMORY + 0x80000
"""For what is too large for a call's own page: to be written, to be read into."""
MOST_BYTES = 0x40000
VHOST = MEMORY + 0x100000
"""What a virtual machine's memory would be."""
END = MEMORY + MEMORY_LEN
_EDGE_BYTES = 8

_BAD = {Where.NULL: 0, Where.BAD: END + PAGE, Where.EDGE: END - _EDGE_BYTES}


class Memory:
    """Gives places to a call.

    Args:
        raw: the call; what is put goes to its copies and patches.
        number: the call's in its program.
        where: what its first place is like.
    """

    def __init__(self, raw: Raw, number: int, where: Where) -> None:
        self._raw = raw
        self._at = MEMORY + number * PAGE
        self._end = self._at + PAGE
        self._where = where

    def put(self, data: bytes, fds: Mapping[int, int | Ref] | None = None) -> int:
        """Return the address of these bytes.

        Args:
            fds: offset -> a 32-bit number that stands there, or what a call has made.
        """
        bad, self._where = self._where, Where.FINE
        at, room = self._place(len(data), bad, _BULK)
        text = bytearray(data)
        for offset, value in (fds or {}).items():
            if isinstance(value, Ref):
                if offset + 4 <= room:
                    self._raw.patches.append((at + offset, value))
            else:
                text[offset : offset + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
        if room:
            self._raw.copies.append((at, bytes(text[:room])))
        return at

    def room(self, size: int) -> int:
        """Return the address of so many bytes, for the kernel to write to."""
        bad, self._where = self._where, Where.FINE
        return self._place(min(size, MOST_BYTES), bad, _ROOM)[0]

    def at(self, address: int, data: bytes) -> None:
        """Put bytes at a given address of the memory."""
        self._raw.copies.append((address, data))

    def _place(self, size: int, bad: Where, bulk: int) -> tuple[int, int]:
        """Return an address, and how many bytes there may be written."""
        if bad is not Where.FINE:
            return _BAD[bad], min(size, _EDGE_BYTES) if bad is Where.EDGE else 0
        if size > self._end - self._at:
            return bulk, min(size, MOST_BYTES)
        at = self._at
        self._at += (size + 15) & ~15
        return at, size
