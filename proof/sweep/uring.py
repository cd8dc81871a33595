# SPDX-License-Identifier: GPL-2.0-only
"""The part of io_uring that reads one file, by its system calls."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Self

libc = ctypes.CDLL(None, use_errno=True)
_SETUP, _ENTER = 425, 426
"""Numbers of the system calls, on every architecture."""
_SQ_OFFSETS, _CQ_OFFSETS = 40, 80
"""Offsets in struct io_uring_params, which is three times 40 bytes."""
_OFF_SQ, _OFF_CQ, _OFF_SQES = 0, 0x8000000, 0x10000000
_SQE = struct.Struct("=BBHiQQIIQH22x")
_CQE = struct.Struct("=QiI")
_OP_ASYNC_CANCEL, _OP_READ, _OP_PROVIDE, _OP_MULTISHOT = 14, 22, 31, 49
_SELECT, _GROUP = 1 << 5, 7
"""IOSQE_BUFFER_SELECT: the kernel takes a buffer of a group; the number of the only group."""
_CANCEL_ALL, _CANCEL_ANY = 1, 4
_GETEVENTS = 1
MORE, BUFFER = 2, 16
CANCEL = 1 << 32
"""The tag of the request that cancels all others."""


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "io_uring")
    return result


class Uring:
    """A ring; a context manager.

    Args:
        entries: requests at a time, a power of two.

    Raises:
        OSError: ENOSYS, EPERM: io_uring is not available.
    """

    def __init__(self, entries: int) -> None:
        params = ctypes.create_string_buffer(120)
        self._fd = _check(libc.syscall(_SETUP, entries, params))
        raw = params.raw
        sq_entries, cq_entries = struct.unpack_from("=II", raw)
        sq = struct.unpack_from("=7I", raw, _SQ_OFFSETS)
        cq = struct.unpack_from("=7I", raw, _CQ_OFFSETS)
        self._sq = mmap.mmap(self._fd, sq[6] + 4 * sq_entries, offset=_OFF_SQ)
        self._cq = mmap.mmap(self._fd, cq[5] + _CQE.size * cq_entries, offset=_OFF_CQ)
        self._sqes = mmap.mmap(self._fd, _SQE.size * sq_entries, offset=_OFF_SQES)
        self._sq_tail, self._sq_array = sq[1], sq[6]
        self._sq_mask = self._word(self._sq, sq[2])
        self._cq_head, self._cq_tail, self._cqes = cq[0], cq[1], cq[5]
        self._cq_mask = self._word(self._cq, cq[2])
        self._unsubmitted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in (self._sq, self._cq, self._sqes):
            part.close()
        os.close(self._fd)

    @staticmethod
    def _word(part: mmap.mmap, at: int) -> int:
        return int(struct.unpack_from("=I", part, at)[0])

    def _put(self, sqe: bytes) -> None:
        tail = self._word(self._sq, self._sq_tail)
        place = tail & self._sq_mask
        self._sqes[place * _SQE.size : (place + 1) * _SQE.size] = sqe
        struct.pack_into("=I", self._sq, self._sq_array + 4 * place, place)
        struct.pack_into("=I", self._sq, self._sq_tail, (tail + 1) & 0xFFFFFFFF)
        self._unsubmitted += 1

    def read(self, fd: int, address: int, length: int, tag: int) -> None:
        """Queue a read at the file's position."""
        offset = (1 << 64) - 1
        self._put(_SQE.pack(_OP_READ, 0, 0, fd, offset, address, length, 0, tag, 0))

    def provide(self, address: int, length: int, first: int, count: int, tag: int) -> None:
        """Queue a request that provides consecutive buffers for multishot reads.

        Args:
            length: of each buffer, bytes.
            first: number of the first buffer.
        """
        self._put(_SQE.pack(_OP_PROVIDE, 0, 0, count, first, address, length, 0, tag, _GROUP))

    def read_on(self, fd: int, tag: int) -> None:
        """Queue a multishot read into provided buffers; since Linux 6.7."""
        offset = (1 << 64) - 1
        self._put(_SQE.pack(_OP_MULTISHOT, _SELECT, 0, fd, offset, 0, 0, 0, tag, _GROUP))

    def cancel_all(self) -> None:
        """Queue a request that cancels all others; completed reads keep their packets."""
        flags = _CANCEL_ALL | _CANCEL_ANY
        self._put(_SQE.pack(_OP_ASYNC_CANCEL, 0, 0, -1, 0, 0, 0, flags, CANCEL, 0))

    def submit(self, wait: int) -> bool:
        """Submit queued requests and wait for ``wait`` completions; False: a signal interrupted."""
        result = libc.syscall(
            _ENTER, self._fd, self._unsubmitted, wait, _GETEVENTS, ctypes.c_void_p(0), 0
        )
        if result < 0 and ctypes.get_errno() == errno.EINTR:
            return False
        self._unsubmitted -= _check(result)
        return True

    def completions(self) -> Iterator[tuple[int, int, int]]:
        """Yield (tag, result, flags) of each completion; a buffer's number is flags >> BUFFER."""
        head = self._word(self._cq, self._cq_head)
        while head != self._word(self._cq, self._cq_tail):
            at = self._cqes + (head & self._cq_mask) * _CQE.size
            tag, result, flags = _CQE.unpack_from(self._cq, at)
            head = (head + 1) & 0xFFFFFFFF
            struct.pack_into("=I", self._cq, self._cq_head, head)
            yield tag, result, flags
