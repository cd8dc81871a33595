# SPDX-License-Identifier: GPL-2.0-only
"""The memory of a program: where each call has what it hands to the kernel."""

from __future__ import annotations

import ctypes
import errno
import mmap
import struct
from functools import cache

MEMORY, MEMORY_LEN = 0x20000000, 0x200000
"""Address and bytes; behind it there is none. A virtual machine's memory is the same."""
END = MEMORY + MEMORY_LEN
PAGE = 4096
_BULK, _ROOM = MEMORY + 0x40000, MEMORY + 0x80000
"""For what is too large for a call's own page: to be written, to be read into."""
MOST_BYTES = 0x40000
VHOST = MEMORY + 0x100000
"""Where the rings of a virtual machine are."""
_BAD = {"null": 0, "bad": END + PAGE, "edge": END - 8}
_FIXED_NOREPLACE = 0x100000

_MASKS = {"B": 0xFF, "H": 0xFFFF, "I": 0xFFFFFFFF, "Q": (1 << 64) - 1}


def pack(form: str, *values: int | bytes) -> bytes:
    """Pack as :func:`struct.pack` does, numbers cut to their widths (letters B, H, I, Q, s, x)."""
    letters = [letter for letter in form if letter in "BHIQs"]
    cut = [
        value if isinstance(value, bytes) else value & _MASKS[letter]
        for letter, value in zip(letters, values, strict=True)
    ]
    return struct.pack(form, *cut)


@cache
def allocate() -> None:
    """Map the memory, once; the children of this process have it as well.

    Raises:
        OSError: something else is there.
    """
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE
    if libc.mmap(MEMORY, MEMORY_LEN, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0) != MEMORY:
        raise OSError(errno.ENOMEM, "the fuzzer's memory cannot be mapped")


class Memory:
    """Gives addresses to a call.

    Args:
        number: the call's in its program.
        where: what its first address is like, see :class:`nodrop.guest.fuzz.program.Call`.

    Attributes:
        load: the address of the 32-bit number that is the call's result; 0: it is what the
            system call returns.
    """

    def __init__(self, number: int, where: str) -> None:
        self.load = 0
        self._at = MEMORY + number * PAGE
        self._end = self._at + PAGE
        self._where = where

    def put(self, data: bytes) -> int:
        """Return the address of these bytes."""
        at, room = self._place(len(data), _BULK)
        ctypes.memmove(at, data, min(len(data), room))
        return at

    def room(self, size: int) -> int:
        """Return the address of so many bytes, for the kernel to write to."""
        return self._place(size, _ROOM)[0]

    @staticmethod
    def at(address: int, data: bytes) -> None:
        """Put bytes at a given address of the memory."""
        ctypes.memmove(address, data, len(data))

    def _place(self, size: int, bulk: int) -> tuple[int, int]:
        """Return an address, and how many bytes may be written there."""
        where, self._where = self._where, ""
        if where:
            return _BAD[where], 8 if where == "edge" else 0
        if size > self._end - self._at:
            return bulk, MOST_BYTES
        at = self._at
        self._at += (size + 15) & ~15
        return at, size
