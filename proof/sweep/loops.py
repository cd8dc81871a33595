# SPDX-License-Identifier: GPL-2.0-only
"""The readers' loops, and their record of packets.

All wait without a timeout, so that a notification that the driver omits shows.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from proof.sweep.payload import MAGIC, number_of, right, swapped
from proof.sweep.uring import BUFFER, CANCEL, MORE, Uring, libc

BYTES = 65536 + 64
MOST = 1 << 16
"""Most packets of a row."""
IN_FLIGHT = 4
"""Reads pending in io_uring, or its buffers."""
REST_S = 0.002
_NO_DEVICE = {errno.EBADFD, errno.EFAULT, errno.EIO, errno.ENETDOWN}
"""Errors of a queue without a device."""


class Tally:
    """The packets that readers took, in shared memory: the counts survive a reader's SIGKILL."""

    READERS = 16

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, MOST + 8 * self.READERS)
        self.seen = memoryview(self._map)[:MOST]
        self.words = memoryview(self._map)[MOST:].cast("Q")
        self.clear()

    def clear(self) -> None:
        """Reset all counts."""
        self._map.seek(0)
        self._map.write(bytes(MOST + 8 * self.READERS))
        self.readers = 0
        self.wrong = ""

    def take(self) -> int:
        """Return the index of a reader's counter."""
        self.readers += 1
        return self.readers - 1

    @property
    def came(self) -> int:
        """Test packets that were read."""
        return sum(self.words)


class Taker:
    """Check and count test packets, and send TCP packets back.

    Args:
        ordered: whether their numbers must grow.
        echo_fd: the file to write TCP packets back to; -1: do not.
        skip: length of the Ethernet header, bytes.
    """

    def __init__(self, tally: Tally, *, ordered: bool, echo_fd: int, skip: int) -> None:
        self._tally, self._place = tally, tally.take()
        self._last = -1
        self._ordered, self._echo_fd, self._skip = ordered, echo_fd, skip

    def take(self, data: bytes) -> None:
        """Check and count a packet."""
        if self._echo_fd >= 0 and (back := swapped(data, self._skip)):
            # Do not block: nothing wakes a writer that waits for a tun's send buffer.
            with suppress(OSError):
                os.pwritev(self._echo_fd, [back], -1, os.RWF_NOWAIT)
            return
        at = data.find(MAGIC)
        if at < 0:
            return
        number = number_of(data, at)
        if not right(data, at):
            self._tally.wrong = f"packet {number} was changed"
        elif self._tally.seen[number]:
            self._tally.wrong = f"packet {number} arrived twice"
        elif self._ordered and number < self._last:
            self._tally.wrong = f"packet {number} arrived after {self._last}"
        self._last = number
        self._tally.seen[number] = 1
        self._tally.words[self._place] += 1


class Loop:
    """Read a file until ``stop`` is set; runs in a thread or in a process.

    Args:
        kind: of reader, as in rows.py.
        fd: the file, blocking or not as the kind requires.
        take: called with each packet.
        rests: packets after which to sleep for REST_S each.

    Attributes:
        bell: an eventfd to write after setting ``stop``; interrupt the thread, too.
    """

    def __init__(self, kind: str, fd: int, take: Callable[[bytes], None], rests: int = 0) -> None:
        self.fd, self.rests = fd, rests
        self.bell = os.eventfd(0)
        self.stop = False
        self._take = take
        self._buffer = ctypes.create_string_buffer(BYTES)
        kinds: dict[str, Callable[[], None]] = {
            "poll": self._poll,
            "epoll": self._epoll,
            "uring": self._uring,
            "multishot": self._multishot,
        }
        self.run = kinds.get(kind, self._blocking)

    def took(self, data: bytes) -> None:
        """Handle a packet, and rest."""
        self._take(data)
        if self.rests:
            self.rests -= 1
            time.sleep(REST_S)

    def _once(self) -> bool:
        """Read once; return whether there was a packet."""
        got = int(libc.read(self.fd, self._buffer, BYTES))
        if got > 0:
            self.took(bytes(memoryview(self._buffer)[:got]))
            return True
        self._met(ctypes.get_errno() if got < 0 else 0)
        return False

    @staticmethod
    def _met(code: int) -> None:
        if code in _NO_DEVICE:
            time.sleep(0.001)
        elif code not in (0, errno.EINTR, errno.EAGAIN, errno.ECANCELED, errno.ENOBUFS):
            raise OSError(code, os.strerror(code), "a reader")

    def _blocking(self) -> None:
        while not self.stop:
            self._once()

    def _poll(self) -> None:
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.register(self.bell, select.POLLIN)
        while not self.stop:
            poll.poll()
            self._once()

    def _epoll(self) -> None:
        with select.epoll() as epoll:
            epoll.register(self.fd, select.EPOLLIN | select.EPOLLET)
            epoll.register(self.bell, select.EPOLLIN)
            while not self.stop:
                epoll.poll()
                while self._once() and not self.stop:
                    pass

    def _completions(self, ring: Uring) -> Iterator[tuple[int, int, int]]:
        """Yield completions of reads; cancel all reads once ``stop`` is set."""
        cancelled = False
        while True:
            if self.stop and not cancelled:
                ring.cancel_all()
                cancelled = True
            ring.submit(1)
            yield from (done for done in ring.completions() if done[0] != CANCEL)

    def _uring(self) -> None:
        buffers = [ctypes.create_string_buffer(BYTES) for _ in range(IN_FLIGHT)]
        with Uring(2 * IN_FLIGHT) as ring:

            def queue_read(tag: int) -> None:
                ring.read(self.fd, ctypes.addressof(buffers[tag]), BYTES, tag)

            for tag in range(IN_FLIGHT):
                queue_read(tag)
            waiting = IN_FLIGHT
            for tag, got, _ in self._completions(ring):
                if got > 0:
                    self.took(bytes(memoryview(buffers[tag])[:got]))
                else:
                    self._met(-got)
                if not self.stop:
                    queue_read(tag)
                    continue
                waiting -= 1
                if not waiting:
                    return

    def _multishot(self) -> None:
        """One multishot read, with IN_FLIGHT buffers in turn."""
        memory = ctypes.create_string_buffer(IN_FLIGHT * BYTES)
        base = ctypes.addressof(memory)
        with Uring(4 * IN_FLIGHT) as ring:
            ring.provide(base, BYTES, 0, IN_FLIGHT, CANCEL)
            ring.read_on(self.fd, 0)
            for _, got, flags in self._completions(ring):
                if got > 0:
                    number = flags >> BUFFER
                    at = number * BYTES
                    self.took(bytes(memoryview(memory)[at : at + got]))
                    ring.provide(base + at, BYTES, number, 1, CANCEL)
                else:
                    self._met(-got)
                if not flags & MORE:
                    if self.stop:
                        return
                    ring.read_on(self.fd, 0)
