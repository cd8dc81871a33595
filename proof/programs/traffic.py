# SPDX-License-Identifier: GPL-2.0-only
"""Senders, readers, and the account of each packet between them."""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from devices import NAME, THERE, all_drops, dropped, in_rings
from harness import check, equal, soon

from guestlib.environment import Environment, scaled, time_limit, wait_until
from guestlib.netstats import link_counters, qdisc_counters
from guestlib.pktgen import Pktgen
from guestlib.tundev import TunDevice
from guestlib.vhost_client import VhostClient

SEND_TIMEOUT = struct.pack("ll", 0, 250_000)
"""Interval at which a blocked sender checks whether to stop, as a struct timeval."""


def udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


class Sender:
    """Send numbered datagrams from a blocking socket, in a thread.

    Args:
        packets: how many to send.
        port: the destination port.
        patient: count network errors, and continue.
    """

    def __init__(self, packets: int, *, port: int = 9, patient: bool = False) -> None:
        self.sent = 0
        self.errors = 0
        self.port = port
        self._packets = packets
        self._patient = patient
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:
            self._failed = True
            text = f"# the sender to port {self.port} ended after {self.sent} packets: {error!r}\n"
            print(text, end="", flush=True)

    def _send(self) -> None:
        with udp() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT)
            while self.sent < self._packets and not self._stop.is_set():
                try:
                    sock.sendto(self.sent.to_bytes(4, "big") * 16, (THERE, self.port))
                except BlockingIOError:
                    continue
                except OSError:
                    if not self._patient:
                        raise
                    self.errors += 1
                    time.sleep(0.001)
                    continue
                self.sent += 1

    def finished(self, timeout: float) -> bool:
        """Return whether it has ended, without an error, within time_limit(timeout)."""
        self._thread.join(time_limit(timeout))
        return not self._thread.is_alive() and not self._failed

    def blocked(self, seconds: float) -> bool:
        """Return whether it is still sending after a time, seconds on a fast guest."""
        self._thread.join(scaled(seconds))
        return self._thread.is_alive()

    def stop(self) -> bool:
        """Stop sending; return whether the sender ended, without an error."""
        self._stop.set()
        return self.finished(5)


def start_senders(count: int, packets: int = 10**6) -> list[Sender]:
    """Start senders to the ports from 1000 on."""
    return [Sender(packets, port=1000 + number) for number in range(count)]


def stop_all(senders: Iterable[Sender]) -> None:
    """Stop senders; fail unless each ends."""
    for sender in senders:
        check(sender.stop(), f"the sender to port {sender.port} hangs")


def packets(fd: int) -> Iterator[bytes]:
    """Read and yield all queued packets; the file becomes non-blocking."""
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):
        while True:
            yield os.read(fd, 65536)


class Reader:
    """Read a tun file in a thread; a context manager.

    It polls without a timeout, so that a notification that the driver omits shows.

    Args:
        fd: the file; it becomes non-blocking.
        account: where to record the packets; several readers may share one.
        pause_s: sleep after each packet, s.
    """

    def __init__(self, fd: int, account: Account | None = None, *, pause_s: float = 0.0) -> None:
        os.set_blocking(fd, False)
        self.packets = 0
        self._fd = fd
        self._account = account
        self._pause_s = pause_s
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join(time_limit(5))
        os.close(self._stop)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while self._stop not in dict(poll.poll()):
            try:
                packet = os.read(self._fd, 65536)
            except BlockingIOError:
                continue
            except OSError as error:
                # The queue is detached, or its device deleted.
                if error.errno != errno.EBADFD:
                    raise
                time.sleep(0.001)
                continue
            if self._account:
                self._account.add(packet)
            self.packets += 1
            if self._pause_s:
                time.sleep(self._pause_s)

    def reaches(self, packets: int, timeout: float = 10.0) -> bool:
        """Return whether it has read ``packets`` packets within time_limit(timeout)."""
        return wait_until(lambda: self.packets >= packets, timeout, step_s=0.005)


class EdgeReader(Reader):
    """Read at most ``budget`` packets for each event."""

    def __init__(self, fd: int, budget: int) -> None:
        super().__init__(fd)
        self._budget = budget

    def _run(self) -> None:
        with select.epoll() as epoll:
            epoll.register(self._fd, select.EPOLLIN | select.EPOLLET)
            epoll.register(self._stop, select.EPOLLIN)
            while self._stop not in dict(epoll.poll()):
                self.packets += sum(1 for _ in itertools.islice(packets(self._fd), self._budget))


IPV4_UDP = b"\x45"
PORT, SEQUENCE = slice(22, 24), slice(28, 32)
"""Offsets of a Sender's destination port and packet number, from the IPv4 header on."""


def read_number(device: TunDevice) -> int:
    """Read a TAP's next packet, and return its number."""
    check(bool(select.select([device.fd], [], [], time_limit(5))[0]), "no packet to read")
    return int.from_bytes(os.read(device.fd, 2048)[14:][SEQUENCE], "big")


STILL_S = time_limit(2.0)
"""If no packet arrives for so long, none will. Seconds."""


class Account:
    """The packet numbers received from each sender, by its port.

    Args:
        skip: bytes before the IPv4 header, 14 for a TAP.
    """

    def __init__(self, *, skip: int = 0) -> None:
        self.came: dict[int, list[int]] = {}
        self.others = 0
        self._skip = skip

    def add(self, packet: bytes) -> None:
        """Record one packet; only count it if no Sender sent it."""
        packet = packet[self._skip :]
        if packet[:1] != IPV4_UDP or packet[9] != 17:
            self.others += 1
            return
        port = int.from_bytes(packet[PORT], "big")
        self.came.setdefault(port, []).append(int.from_bytes(packet[SEQUENCE], "big"))

    def of(self, sender: Sender) -> list[int]:
        """Return a copy of the numbers received from a sender; readers may add more meanwhile."""
        return list(self.came.get(sender.port, []))

    def count(self) -> int:
        return sum(map(len, self.came.values()))

    def missing(self, senders: Iterable[Sender]) -> int:
        """Return how many packets of the senders are missing; fail if one arrived twice."""
        missing = 0
        for sender in senders:
            numbers = self.of(sender)
            equal(len(set(numbers)), len(numbers), f"port {sender.port}: packets without copies")
            missing += sender.sent - len(numbers)
        return missing

    def in_order(self, senders: Iterable[Sender]) -> None:
        """Fail unless each sender's packets arrived in order."""
        for sender in senders:
            numbers = self.of(sender)
            late = sum(b < a for a, b in itertools.pairwise(numbers))
            equal(late, 0, f"port {sender.port}: packets out of order")


def all_finish(senders: Iterable[Sender]) -> None:
    """Fail unless each sender finishes within 15 s."""
    for sender in senders:
        check(sender.finished(15), f"the sender to port {sender.port} hangs")


def settled(
    senders: Sequence[Sender],
    account: Account,
    *,
    allowed: str = "",
    order: bool = True,
    since: dict[str, int] | None = None,
) -> int:
    """Fail unless every packet is accounted for and none is queued any more.

    The senders have ended; the readers still read.

    Args:
        allowed: the causes of drops, as all_drops() names them, that are no failure.
        order: whether each sender's packets must be in order.
        since: all_drops() before the senders began.

    Returns:
        The packets dropped by allowed causes.
    """

    def rest() -> int:
        return account.missing(senders) - sum(all_drops(since).values())

    came, moved = -1, time.monotonic()
    while rest() > 0 or qdisc_counters(NAME).queued:
        if account.count() != came:
            came, moved = account.count(), time.monotonic()
        check(
            time.monotonic() - moved < STILL_S,
            f"{rest()} packets neither arrived nor were counted as drops, "
            f"{qdisc_counters(NAME).queued} are in the qdisc, {in_rings()} in rings; "
            f"drops: {all_drops(since)}",
        )
        time.sleep(0.02)
    lost = all_drops(since)
    equal(set(lost) - set(allowed.split()), set(), f"causes of drops {lost}")
    equal(rest(), 0, "packets counted as drops that arrived")
    if order:
        account.in_order(senders)
    soon(lambda: in_rings() == 0, lambda: f"{in_rings()} packets stay in rings", 2)
    return sum(lost.values())


def check_delivery(account: Account, *, first_port: int = 2000) -> None:
    """Fail unless new packets of several senders all arrive: no txq is left stopped."""
    before = all_drops()
    senders = [Sender(100, port=first_port + number) for number in range(4)]
    all_finish(senders)
    settled(senders, account, since=before)


def fill(sock: socket.socket) -> None:
    """Make the socket non-blocking, and send until its send buffer is full."""
    sock.setblocking(False)
    for _ in range(20_000):
        try:
            sock.sendto(bytes(1000), (THERE, 9))
        except BlockingIOError:
            return
    raise AssertionError("no backpressure: the socket's send buffer does not fill")


@contextmanager
def one_cpu(cpu: int = 0) -> Iterator[None]:
    """Pin this thread and those that it starts, and so what they send, to a CPU for the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


SLOW_NS = 100_000
"""Work per packet that makes a client slower than any sender, even on debug kernels."""


def client(device: TunDevice, *, slots: int = 256, work_ns: int = 0) -> VhostClient:
    """Return a vhost-net client for a device."""
    return VhostClient(Environment.from_environ(), device.fd, slots=slots, work_ns=work_ns)


@dataclass
class PktgenFlood:
    """Packets offered to the device or its qdisc; known at the flood's end."""

    offered: int = 0


@contextmanager
def flood(senders: int, *, direct: bool) -> Iterator[PktgenFlood]:
    """Send as fast as possible for the block, past the qdisc (``direct``) or through it."""
    found = PktgenFlood()
    with Pktgen(NAME, senders=senders, packet_bytes=60, direct=direct) as pktgen:
        with pktgen.sending():
            yield found
        found.offered = sum(sender.offered for sender in pktgen.results())


def all_arrive(reader: VhostClient, offered: int) -> None:
    """Fail unless each packet arrives or was dropped by the qdisc at its limit."""

    def missing() -> int:
        return offered - qdisc_counters(NAME).drops - reader.packets

    check(offered > 0, "no packet was sent")
    soon(lambda: missing() <= 0, "packets are lost or stuck")
    equal(missing(), 0, "packets missing")
    equal(dropped(), 0, "packets dropped")


def taken_and_put_back(
    device: TunDevice, reader: VhostClient, slots: int, fill: Callable[[], object]
) -> None:
    """Let vhost-net take a batch for few buffers, and leave: the rest comes back in order.

    Args:
        reader: a client with so many slots.
        fill: waits until the device's ring is full.
    """
    count = 400
    reader.order("pause")
    reader.detach()
    sender = Sender(count)
    fill()
    reader.attach()
    soon(lambda: link_counters(NAME).tx_packets == slots, "the guest got nothing")
    reader.detach()
    numbers = [read_number(device) for _ in range(count - slots)]
    equal(numbers, list(range(slots, count)), "packets after vhost-net detached")
    check(sender.finished(5), "the sender hangs")
    equal(dropped(), 0, "packets dropped")
