# SPDX-License-Identifier: GPL-2.0-only
"""Readers that are processes: they wait without a time limit, count, and look at what they read.

A reader that the driver forgets to call sleeps on: that is how a lost call is noticed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from nodrop.guest.sweep.uring import CANCEL, Uring
from nodrop.guest.torture.crew import Asked
from nodrop.guest.torture.senders import MAGIC, MARK, wrong
from nodrop.guest.torture.shared import SLOTS, Field, Memory, Wrong, libc
from nodrop.guest.torture.tcp import swap

BUFFER = 65536 + 64
ETHERNET, HEADERS = 14, 28
IN_FLIGHT = 4
"""Reads that wait in io_uring."""

_PAUSE_S = 0.001
_NO_DEVICE = frozenset({errno.EBADFD, errno.EFAULT, errno.EIO})
"""What a queue without a device says."""


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class Judge:
    """Counts packets and looks whether they are what was sent.

    Args:
        slot: of the reader.
        tap: there are Ethernet headers.
        ordered: each sender's packets must come in their order.
        back_to: a tun file to which TCP's packets are sent back; -1: they are not.
    """

    def __init__(
        self, memory: Memory, slot: int, *, tap: bool, ordered: bool, back_to: int = -1
    ) -> None:
        self._memory = memory
        self._slot = slot
        self._back_to = back_to
        self._skip = ETHERNET if tap else 0
        self._ordered = ordered

    def took(self, data: memoryview) -> None:
        """Look at a packet that was read."""
        self._memory.add(self._slot, Field.COUNT)
        skip = self._skip
        if bytes(data[12:14]) != _ETH_P_IP if skip else data[0] != _IPV4:
            self._memory.add(self._slot, Field.OTHERS)
            return
        if self._back_to >= 0 and swap(data[skip:]):
            # What does not go in is lost, and sent again. No waiting: nobody wakes a write that
            # waits for room in the send buffer (tun_sock_write_space(), all kernels).
            with suppress(OSError):
                os.pwritev(self._back_to, [data], -1, os.RWF_NOWAIT)
            return
        contents = data[skip + HEADERS :]
        if len(contents) < MARK.size or bytes(contents[:4]) != _MAGIC:
            return
        _, sender, number = MARK.unpack_from(contents)
        if wrong(contents) or not 0 < sender < SLOTS:
            self._blame(Wrong.CONTENT, number)
        elif self._ordered:
            if self._memory.get(sender, Field.LAST) > number:
                self._blame(Wrong.ORDER, number)
            self._memory.set(sender, Field.LAST, number + 1)

    def _blame(self, what: Wrong, number: int) -> None:
        self._memory.set(self._slot, Field.WHERE, number)
        self._memory.set(self._slot, Field.WRONG, what)


_MAGIC = struct.pack("!I", MAGIC)
_ETH_P_IP, _IPV4 = b"\x08\x00", 0x45


def _read(fd: int, address: ctypes.Array[ctypes.c_char]) -> int:
    """Return the length of what was read, or a negative errno; a signal interrupts it."""
    got = int(libc.read(fd, address, BUFFER))
    return got if got >= 0 else -ctypes.get_errno()


def _met(got: int) -> None:
    """Go on after an error, or fail."""
    if -got in _NO_DEVICE:
        time.sleep(_PAUSE_S)
    elif -got not in (errno.EINTR, errno.EAGAIN):
        raise OSError(-got, "read")


def _plain(fd: int, judge: Judge, asked: Asked, wait: Callable[[], object]) -> None:
    buffer = ctypes.create_string_buffer(BUFFER)
    view = memoryview(buffer).cast("B")
    while not asked.stop:
        wait()
        got = _read(fd, buffer)
        if got > 0:
            judge.took(view[:got])
        elif got < 0:
            _met(got)


def _blocking(fd: int, judge: Judge, asked: Asked) -> None:
    _plain(fd, judge, asked, lambda: None)


def _poll(fd: int, judge: Judge, asked: Asked) -> None:
    waits = _PollFd(fd, select.POLLIN, 0)
    _plain(fd, judge, asked, lambda: libc.poll(ctypes.byref(waits), 1, -1))


def _uring(fd: int, judge: Judge, asked: Asked) -> None:
    buffers = [ctypes.create_string_buffer(BUFFER) for _ in range(IN_FLIGHT)]
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    with Uring(2 * IN_FLIGHT) as ring:

        def ask(tag: int) -> None:
            ring.read(fd, ctypes.addressof(buffers[tag]), BUFFER, tag)

        for tag in range(IN_FLIGHT):
            ask(tag)
        waiting, cancelled = IN_FLIGHT, False
        while waiting:
            if asked.stop and not cancelled:
                ring.cancel_all()
                cancelled = True
            ring.submit(1)
            for tag, got in ring.answers():
                if tag == CANCEL:
                    continue
                waiting -= 1
                if got > 0:
                    judge.took(views[tag][:got])
                elif got < 0 and -got != errno.ECANCELED:
                    _met(got)
                if not asked.stop:
                    ask(tag)
                    waiting += 1


_KINDS = {"blocking": _blocking, "poll": _poll, "uring": _uring}


def read(
    memory: Memory,
    slot: int,
    asked: Asked,
    files: list[int],
    kind: str,
    tap: bool,
    ordered: bool,
    reflect: bool,
) -> None:
    """Be a reader of a tun file: the job "read".

    Args:
        ordered: each sender's packets must come in their order.
        reflect: TCP's packets go back.
    """
    # Several reads that wait at the same time say nothing about the order.
    ordered_here = ordered and kind != "uring"
    back_to = files[0] if reflect else -1
    judge = Judge(memory, slot, tap=tap, ordered=ordered_here, back_to=back_to)
    _KINDS[kind](files[0], judge, asked)
