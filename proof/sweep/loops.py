# SPDX-License-Identifier: GPL-2.0-only
"""How readers of ours read and what they make of it; all wait without a time limit.

A reader that the driver forgets to call sleeps on.
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
"""Packets of a row."""
IN_FLIGHT = 4
"""Reads that wait in io_uring, or its buffers."""
REST_S = 0.002
_NO_DEVICE = {errno.EBADFD, errno.EFAULT, errno.EIO, errno.ENETDOWN}
"""What a queue without a device says."""


class Tally:
    """What readers took, in memory that processes share; its counts survive a SIGKILL."""

    READERS = 16

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, MOST + 8 * self.READERS)
        self.seen = memoryview(self._map)[:MOST]
        self.words = memoryview(self._map)[MOST:].cast("Q")
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._map.seek(0)
        self._map.write(bytes(MOST + 8 * self.READERS))
        self.readers = 0
        self.wrong = ""

    def take(self) -> int:
        """Return a place to count in, for one reader."""
        self.readers += 1
        return self.readers - 1

    @property
    def came(self) -> int:
        """Packets of ours that were read."""
        return sum(self.words)


class Taker:
    """Looks at packets: counts ours, and sends TCP's back.

    Args:
        ordered: their numbers must grow.
        answer: the file to which TCP's packets are sent back, -1: they are not.
        skip: bytes of the Ethernet header.
    """

    def __init__(self, tally: Tally, *, ordered: bool, answer: int, skip: int) -> None:
        self._tally, self._place = tally, tally.take()
        self._last = -1
        self._ordered, self._answer, self._skip = ordered, answer, skip

    def take(self, data: bytes) -> None:
        """Look at one."""
        if self._answer >= 0 and (back := swapped(data, self._skip)):
            # No waiting: nobody wakes a write that waits for room in a tun's send buffer.
            with suppress(OSError):
                os.pwritev(self._answer, [back], -1, os.RWF_NOWAIT)
            return
        at = data.find(MAGIC)
        if at < 0:
            return
        number = number_of(data, at)
        if not right(data, at):
            self._tally.wrong = f"packet {number} was changed on its way"
        elif self._tally.seen[number]:
            self._tally.wrong = f"packet {number} came twice"
        elif self._ordered and number < self._last:
            self._tally.wrong = f"packet {number} came after {self._last}"
        self._last = number
        self._tally.seen[number] = 1
        self._tally.words[self._place] += 1


class Loop:
    """Reads a file until it is told to stop; runs in a thread or in a process.

    Args:
        kind: how it reads.
        fd: the file, blocking or not as the kind wants it.
        take: is given each packet.
        rests: after so many packets it sleeps, each time REST_S.

    Attributes:
        bell: an eventfd that is to ring after ``stop`` was set; interrupt it as well.
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
        """Look at a packet, and rest."""
        self._take(data)
        if self.rests:
            self.rests -= 1
            time.sleep(REST_S)

    def _once(self) -> bool:
        """Read once; whether there was something."""
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

    def _answers(self, ring: Uring) -> Iterator[tuple[int, int, int]]:
        """Give what io_uring answers to reads; they are cancelled when this is to end."""
        cancelled = False
        while True:
            if self.stop and not cancelled:
                ring.cancel_all()
                cancelled = True
            ring.submit(1)
            yield from (answer for answer in ring.answers() if answer[0] != CANCEL)

    def _uring(self) -> None:
        buffers = [ctypes.create_string_buffer(BYTES) for _ in range(IN_FLIGHT)]
        with Uring(2 * IN_FLIGHT) as ring:

            def ask(tag: int) -> None:
                ring.read(self.fd, ctypes.addressof(buffers[tag]), BYTES, tag)

            for tag in range(IN_FLIGHT):
                ask(tag)
            waiting = IN_FLIGHT
            for tag, got, _ in self._answers(ring):
                if got > 0:
                    self.took(bytes(memoryview(buffers[tag])[:got]))
                else:
                    self._met(-got)
                if not self.stop:
                    ask(tag)
                    continue
                waiting -= 1
                if not waiting:
                    return

    def _multishot(self) -> None:
        """One request that is answered again and again, in IN_FLIGHT buffers by turns."""
        memory = ctypes.create_string_buffer(IN_FLIGHT * BYTES)
        base = ctypes.addressof(memory)
        with Uring(4 * IN_FLIGHT) as ring:
            ring.provide(base, BYTES, 0, IN_FLIGHT, CANCEL)
            ring.read_on(self.fd, 0)
            for _, got, flags in self._answers(ring):
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
