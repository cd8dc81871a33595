#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Reads and sends that signals interrupt, that are cancelled, or have bad buffers: no stall."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from devices import DEEP, HERE, NAME, THERE, all_drops, counters, in_rings, tun, until_stopped
from harness import Skip, check, equal, parameter, repeating, run, soon
from traffic import Account, Reader, Sender, all_finish, check_delivery, settled, udp

from guestlib.environment import time_limit
from guestlib.tracing import freed
from guestlib.tundev import IFF_TUN, TunDevice, configure
from proof.sweep.readers import CANCEL, Uring

PORTS = (1000, 1001)
PACKETS = 1500
PACKET = 28 + 64
"""Bytes of a Sender's packet."""
PI = 4
"""Bytes of the header without IFF_NO_PI."""
PERIOD_S = 0.0005
SIGNALS = 200

libc = ctypes.CDLL(None, use_errno=True)
libc.read.restype = ctypes.c_ssize_t
libc.mmap.restype = ctypes.c_void_p


@contextmanager
def storm() -> Iterator[list[int]]:
    """Send signals to this thread, more often than packets arrive; yield those that came."""
    came: list[int] = []
    thread = threading.get_ident()

    def send() -> None:
        time.sleep(PERIOD_S)
        signal.pthread_kill(thread, signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    # Let interrupted calls fail with EINTR.
    signal.siginterrupt(signal.SIGUSR1, True)
    with repeating(send):
        yield came
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def read(fd: int, account: Account, buffer: ctypes.Array[ctypes.c_char]) -> None:
    """Read at most one packet; os.read() would retry after signals."""
    got = libc.read(fd, buffer, ctypes.c_size_t(len(buffer)))
    if got >= 0:
        account.add(buffer.raw[:got])
    elif ctypes.get_errno() not in (errno.EINTR, errno.EAGAIN):
        raise OSError(ctypes.get_errno(), "read")


def case_signals_at_read() -> None:
    """Read all packets of two senders while signals interrupt every wait."""
    account = Account()
    buffer = ctypes.create_string_buffer(2000)
    with tun(5) as device, storm() as signals:
        os.set_blocking(device.fd, True)
        senders = [Sender(PACKETS, port=port) for port in PORTS]
        until_stopped()
        deadline = time.monotonic() + time_limit(60)
        while account.count() < PACKETS * len(senders) or len(signals) < SIGNALS:
            check(time.monotonic() < deadline, f"{account.count()} packets, {len(signals)} signals")
            read(device.fd, account, buffer)
            # Read slowly at first, so that the senders block; then faster than they send.
            if account.count() < PACKETS / 3:
                time.sleep(0.0002)
        all_finish(senders)
        account.in_order(senders)
        with Reader(device.fd, account):
            settled(senders, account)
            check_delivery(account)
        equal(all_drops(), {}, "packets dropped")


def case_signals_at_a_blocked_sender() -> None:
    """Its calls end, no packet arrives twice, and it continues when the reader does."""
    account = Account()
    with parameter("guard_ms", "0"), tun(5) as device, storm() as signals:
        sent = ended = 0
        with udp() as sock:
            sock.connect((THERE, 1000))
            while len(signals) < 500:
                data = sent.to_bytes(4, "big") * 16
                if libc.send(sock.fileno(), data, ctypes.c_size_t(len(data)), 0) >= 0:
                    sent += 1
                else:
                    equal(ctypes.get_errno(), errno.EINTR, "errno")
                    ended += 1
            check(counters()["stops"] > 0, "the txq was not stopped")
            # The account's key is the destination port.
            with Reader(device.fd, account):
                soon(lambda: account.count() == sent, lambda: f"only {account.count()} of {sent}")
                equal(account.came[1000], list(range(sent)), "packet numbers")
                check_delivery(account)
        equal(all_drops(), {}, "packets dropped")
    check(ended > 0, "no call was interrupted")


@contextmanager
def pages() -> Iterator[int]:
    """Map two pages for the block, the second without access; yield their address."""
    size = mmap.PAGESIZE
    mode = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    nowhere = ctypes.c_void_p(None)
    length = ctypes.c_size_t(2 * size)
    address = libc.mmap(nowhere, length, mode, flags, -1, ctypes.c_long(0))
    second = ctypes.c_void_p(address + size)
    try:
        check(libc.mprotect(second, ctypes.c_size_t(size), 0) == 0, "mprotect() failed")
        yield address
    finally:
        libc.munmap(ctypes.c_void_p(address), length)


def faulty_reads(fd: int, page: int, count: int) -> tuple[int, int]:
    """Read into buffers that are inaccessible, wholly or in part.

    Returns:
        The reads that failed with EFAULT, and those that were cut short: after the first bytes
        the driver reports no error.
    """
    places = (page + mmap.PAGESIZE, page + mmap.PAGESIZE - 10, 16)
    refused = cut = 0
    deadline = time.monotonic() + time_limit(20)
    while (number := refused + cut) < count:
        check(time.monotonic() < deadline, f"only {number} packets arrived")
        place = ctypes.c_void_p(places[number % len(places)])
        got = libc.read(fd, place, ctypes.c_size_t(2000))
        if got >= 0:
            equal((got, number % len(places)), (PI + PACKET, 1), "bytes read, and the place")
            cut += 1
        elif ctypes.get_errno() == errno.EAGAIN:
            time.sleep(0.001)
        else:
            equal(ctypes.get_errno(), errno.EFAULT, "errno of read()")
            refused += 1
    return refused, cut


def case_bad_addresses() -> None:
    """A packet that cannot be copied is lost, as with the stock driver; all others arrive."""
    account = Account(skip=PI)
    # With the packet information header, whose copy is checked.
    with TunDevice(NAME, IFF_TUN, exact=True) as device, pages() as page, freed() as lost:
        configure(NAME, txqueuelen=5, qdisc=DEEP, address=f"{HERE} peer {THERE}/32")
        os.set_blocking(device.fd, False)
        senders = [Sender(PACKETS, port=port) for port in PORTS]
        until_stopped()
        refused, cut = faulty_reads(device.fd, page, 300)
        check(refused > 100 and cut > 50, f"{refused} and {cut} packets were not copied")
        with Reader(device.fd, account):
            all_finish(senders)
            soon(
                lambda: account.missing(senders) == refused + cut,
                lambda: (
                    f"{account.missing(senders)} packets are missing, {refused} + {cut} were read"
                ),
            )
            equal(lost(), refused, "packets that the kernel freed as dropped")
            equal(all_drops(), {}, "packets dropped by the driver")
            account.in_order(senders)
            check_delivery(account)
        equal(in_rings(), 0, "packets in rings")


ROUNDS = 300
READ = 1
"""The tag of the read."""
NOTHING_CANCELLED = (0, -errno.ENOENT, -errno.EALREADY)
"""Results of a cancel request that cancelled nothing."""


def ring() -> Uring:
    """Return a ring of io_uring; skip the case if the kernel has none."""
    try:
        return Uring(8)
    except OSError as error:
        raise Skip(f"io_uring: {os.strerror(error.errno or 0)}") from error


class Reads:
    """Reads of one file, one at a time, each of which may be cancelled."""

    def __init__(self, uring: Uring, fd: int, account: Account) -> None:
        self.cancelled = self.served = 0
        self._uring = uring
        self._fd = fd
        self._account = account
        self._buffer = ctypes.create_string_buffer(2000)

    def begin(self) -> None:
        self._uring.read(self._fd, ctypes.addressof(self._buffer), len(self._buffer), READ)
        check(self._uring.submit(0), "interrupted")

    def cancel(self) -> bool:
        """Cancel the read, unless it has completed; return whether it got a packet."""
        self._uring.cancel_all()
        ended: dict[int, int] = {}
        while len(ended) < 2:
            check(self._uring.submit(1), "interrupted")
            ended.update((tag, result) for tag, result, _ in self._uring.completions())
        if ended[READ] > 0:
            self._account.add(self._buffer.raw[: ended[READ]])
            self.served += 1
            check(ended[CANCEL] in NOTHING_CANCELLED, f"a completed read was cancelled: {ended}")
            return True
        equal(ended[READ], -errno.ECANCELED, "the read's result")
        self.cancelled += 1
        return False


def case_before_and_after_a_packet() -> None:
    account = Account()
    sent = 0
    with (
        tun(5) as device,
        ring() as uring,
        udp() as sock,
    ):
        sock.connect((THERE, 1000))
        reads = Reads(uring, device.fd, account)
        for number in range(ROUNDS):
            for when in range(3):
                if when == 1:
                    reads.begin()
                elif when == 2:
                    reads.cancel()
                if number % 3 == when:
                    sock.send(sent.to_bytes(4, "big") * 16)
                    sent += 1
            reads.begin()
            while reads.cancel():
                reads.begin()
        check(reads.served > 0, "no read completed")
        # The last packet may still be in the qdisc, which another CPU runs.
        with Reader(device.fd, account):
            soon(lambda: account.count() == sent, lambda: f"{account.count()} of {sent} arrived")
            equal(account.came[1000], list(range(sent)), "packet numbers")
            check_delivery(account)
        equal(all_drops(), {}, "packets dropped")
        check(reads.cancelled > 0, "no read was cancelled")


run()
