# SPDX-License-Identifier: GPL-2.0-only
"""The readers of a row: threads or processes, a kernel thread, or vhost-net; a row's events.

All wait without a timeout, so that a notification that the driver omits shows.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from guestlib.environment import GuestError, wait_until
from guestlib.kreader import Counts, KernelReader
from guestlib.packets import MAGIC, number_of, right, swapped
from guestlib.process import ip_batch
from guestlib.tundev import attach_queue
from guestlib.vhost_client import VhostClient, VhostCounts
from proof.sweep.topology import NAME, Dut

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
        self._map.seek(0)
        self._map.write(bytes(MOST + 8 * self.READERS))
        self.readers = 0
        self.wrong = ""

    def take(self) -> int:
        """Return the index of a new reader's counter."""
        self.readers += 1
        return self.readers - 1

    @property
    def came(self) -> int:
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


RESTS = 50
"""Packets after which the slow reader of a second queue sleeps."""


class Background(threading.Thread):
    """A daemon thread that runs a function at once; ``error`` is what the function has raised."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self.error = error

    def ended(self) -> bool:
        return not self.is_alive()


class InThread:
    """A loop in a thread; create it in the main thread, which installs its signal handler."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        # The handler only interrupts system calls.
        signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
        self._thread = Background(loop.run)

    def stop(self) -> None:
        """Stop the loop.

        Raises:
            GuestError: it does not stop, or has ended by an error.
        """
        self._loop.stop = True
        os.eventfd_write(self._loop.bell, 1)

        def ended() -> bool:
            # Repeatedly: a signal just before a system call does not interrupt it.
            if self._thread.is_alive() and self._thread.ident:
                signal.pthread_kill(self._thread.ident, signal.SIGUSR1)
            return self._thread.ended()

        if not wait_until(ended):
            raise GuestError("a reader cannot be stopped")
        os.close(self._loop.bell)
        if self._thread.error:
            raise GuestError(f"a reader ended: {self._thread.error!r}")


class InProcess:
    """A loop in a child process, which can be killed."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._pid = os.fork()
        if not self._pid:
            try:
                loop.run()
            finally:
                os._exit(1)

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._loop.bell)


class Readers:
    """All readers of a row's device.

    Attributes:
        unsure: packets that killed readers may have taken, but not counted.
    """

    def __init__(self, dut: Dut, tally: Tally) -> None:
        self.dut, self.tally = dut, tally
        self.unsure = 0
        self._row = dut.row
        self._loops: list[InThread | InProcess] = []
        self._kernel: KernelReader | None = None
        self._client: VhostClient | None = None
        self._before = 0

    @property
    def came(self) -> int:
        if self._kernel:
            return self._before + self._ours(self._kernel.read())
        if self._client:
            return self._before + self._ours(self._client.counts())
        return self._before + self.tally.came

    def _ours(self, counts: VhostCounts | Counts) -> int:
        """Return the IPv4 packets; a TUN has no others, and no header to tell them by."""
        return counts.packets - (0 if self._row.kind == "tun" else counts.others)

    def start(self, *, mortal: bool = False) -> None:
        """Start the readers.

        Args:
            mortal: whether they are to be killed.
        """
        fds = self.dut.fds
        if self._row.reader == "kernel":
            self._kernel = KernelReader(fds[0]).__enter__()
        elif self._row.vhost:
            busyloop = 50 if self._row.reader == "busyloop" else 0
            environment = self.dut.lab.environment
            client = VhostClient(environment, fds[0], slots=64, busyloop_us=busyloop)
            self._client = client.__enter__()
        else:
            for _ in range(2 if self._row.reader == "threads" else 1):
                self._begin(fds[0], self._row.reader, mortal=mortal)
            for fd in fds[1:]:
                self._begin(fd, "poll", mortal=mortal, rests=RESTS)

    def _begin(self, fd: int, kind: str, *, mortal: bool, rests: int = 0) -> None:
        os.set_blocking(fd, kind not in ("poll", "epoll"))
        taker = Taker(
            self.tally,
            ordered=kind not in ("threads", "uring") and len(self.dut.fds) == 1,
            echo_fd=fd if self._row.sender == "tcp" else -1,
            skip=0 if self._row.kind == "tun" else 14,
        )
        loop = Loop(kind, fd, taker.take, rests)
        self._loops.append(InProcess(loop) if mortal else InThread(loop))

    def kill(self) -> None:
        """Kill the readers; each may have taken packets that it has not counted."""
        if self._client:
            # Packets that vhost-net writes after this are not counted.
            self.unsure += MOST
            self._before += self._ours(self._client.counts())
            self._client.__exit__(None, None, None)
            self._client = None
        self.unsure += len(self._loops) * (IN_FLIGHT if "uring" in self._row.reader else 1)
        self.unsure += IN_FLIGHT * (self._row.reader == "multishot")
        self._end_loops()

    def _end_loops(self) -> None:
        while self._loops:
            self._loops.pop().stop()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Stop the kernel's reader for the block: it would end without a device."""
        kernel = self._kernel
        if kernel:
            self.stop()
        yield
        if kernel:
            self.start()

    def swap(self) -> None:
        if self._client:
            self._client.detach()
            self._client.attach()

    def stop(self) -> None:
        if self._kernel:
            self._before += self._ours(self._kernel.stop())
            self._kernel.close()
            self._kernel = None
        if self._client:
            client, self._client = self._client, None
            try:
                self._before += self._ours(client.end())
            finally:
                client.__exit__(None, None, None)
        self._end_loops()


OTHER_SIZES = (3, 600)
"""Values of txqueuelen to set before the row's own."""


def resize(dut: Dut, _readers: Readers) -> None:
    for size in (*OTHER_SIZES, dut.row.slots):
        dut.resize(size)


def reattach(dut: Dut, readers: Readers) -> None:
    """Detach the device's first queue, which may be the only one, and attach it again."""
    with readers.resting():
        attach_queue(dut.fds[0], False)
        attach_queue(dut.fds[0], True)


def down(dut: Dut, _readers: Readers) -> None:
    """Set the device down and up again."""
    lines = [f"link set dev {NAME} down"]
    if dut.row.kind == "tap" and dut.row.neighbour == "vlan":
        # Otherwise a worker does it later (7.3), and deletes the neighbour that up() adds.
        lines.insert(0, f"link set dev {dut.top} down")
    ip_batch(lines)
    dut.up()


def killed(_dut: Dut, readers: Readers) -> None:
    """Kill the reader, and start another one."""
    readers.kill()
    readers.start()


def requdisc(dut: Dut, _readers: Readers) -> None:
    """Replace the qdisc by another kind, and then by a new one of its own kind."""
    dut.set_qdisc("pfifo limit 100")
    dut.set_qdisc(dut.row.qdisc)


def netns(dut: Dut, _readers: Readers) -> None:
    """Move the device to another namespace and back."""
    ip_batch([f"link set dev {NAME} netns away"])
    ip_batch([f"link set dev {NAME} netns {os.getpid()}"], netns="away")
    dut.set_qdisc(dut.row.qdisc)
    dut.address_it()


def swap(_dut: Dut, readers: Readers) -> None:
    readers.swap()


EVENTS: dict[str, Callable[[Dut, Readers], None]] = {
    "none": lambda _dut, _readers: None,
    "resize": resize,
    "reattach": reattach,
    "down": down,
    "killed": killed,
    "requdisc": requdisc,
    "netns": netns,
    "swap": swap,
}
NEEDS_READER = frozenset({"killed", "swap"})
"""Events that need a reader."""
LOSES = frozenset({"reattach", "down", "netns", "requdisc", "resize"})
"""Events during which the network core may drop packets."""
