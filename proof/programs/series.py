#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The drivers with the patches of series/: no packet dropped, no queue stopped for ever.

Its devices are opened with IFF_BACKPRESSURE. Without series' modules, as in a kernel with the
patches, the kernel's own drivers are tested.
"""

from __future__ import annotations

import fcntl
import itertools
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import (
    DEEP,
    NAME,
    SLOW_NS,
    THERE,
    Account,
    EdgeReader,
    Reader,
    Sender,
    all_arrive,
    all_finish,
    check,
    client,
    drivers,
    dropped,
    each,
    equal,
    fill,
    flood,
    packets,
    repeating,
    resize,
    run,
    soon,
    start_senders,
    stop_all,
    swap_backend,
    taken_and_put_back,
    tun,
    udp,
)

from guestlib.drivers import IFF_BACKPRESSURE, modules
from guestlib.environment import Environment
from guestlib.netlink import DUMP, GenericFamily, attribute, attributes, u32
from guestlib.netstats import qdisc_counters
from guestlib.process import ip_batch
from guestlib.sockets import charged
from guestlib.tundev import (
    IFF_MULTI_QUEUE,
    IFF_TAP,
    IFF_TUN,
    TUNSETPERSIST,
    TunDevice,
    attach_queue,
    configure,
)
from lab.variant import Variant

TUN, TAP = IFF_TUN | IFF_BACKPRESSURE, IFF_TAP | IFF_BACKPRESSURE
MULTI = TUN | IFF_MULTI_QUEUE
SLOTS = 16
"""Few buffers of a client: when they are used up, vhost-net keeps packets that it has taken."""
GUARD_S = 2.5
"""How long the stall guard lets a sender wait, s: two windows and some."""
QSTATS_GET, IFINDEX, SCOPE, PER_QUEUE, STOP, WAKE = 12, 1, 4, 1, 33, 34
"""Of the netdev family of generic netlink: a command, attributes and a value."""


def load() -> None:
    """Load series' drivers, or the kernel's own if there are no others."""
    patched = (Environment.from_environ().modules / "series").is_dir()
    variant = Variant.SERIES if patched else Variant.STOCK
    drivers.load(modules(variant, variant))


def nothing_left(account: Account, senders: list[Sender]) -> None:
    """Fail unless all packets arrive, in order."""
    soon(
        lambda: account.missing(senders) == 0,
        lambda: (
            f"{account.missing(senders)} missing, {qdisc_counters(NAME).queued} in the qdisc, "
            f"{dropped()} dropped"
        ),
    )
    account.in_order(senders)
    equal(dropped(), 0, "packets dropped")


@each(500, 5, 1, 0)
def case_two_senders_past_the_qdisc(ring: int) -> None:
    """Two pktgen threads, of which the second finds the queue running that the first stops."""
    with tun(ring, flags=TAP) as device, client(device) as reader:
        with flood(2, direct=True) as sent:
            time.sleep(1)
        all_arrive(reader, sent.offered)


@each(500, 48, 5, 1)
def case_flows(ring: int) -> None:
    account = Account()
    with tun(ring, flags=TUN) as device, Reader(device.fd, account):
        senders = start_senders(8, 1500)
        all_finish(senders, 30)
        nothing_left(account, senders)


def case_resizing() -> None:
    """Lengths come and go while packets flow; a shorter ring drops, but nothing hangs."""
    lengths = itertools.cycle([500, 1, 100, 0, 5, 1000])
    with tun(500, flags=TUN) as device, Reader(device.fd) as reader:
        senders = start_senders(4)
        with repeating(lambda: resize(next(lengths))):
            for _ in range(20):
                seen = reader.packets
                soon(lambda mark=seen: reader.packets > mark + 20, "traffic stalls")
        stop_all(senders)


def case_down_and_up() -> None:
    with tun(500, flags=TUN) as device, Reader(device.fd) as reader:
        senders = [Sender(10**6, port=1000 + n, patient=True) for n in range(2)]
        for _ in range(10):
            ip_batch([f"link set dev {NAME} down"])
            ip_batch([f"link set dev {NAME} up", f"route replace {THERE}/32 dev {NAME}"])
            seen = reader.packets
            soon(lambda mark=seen: reader.packets > mark + 20, "traffic stalls")
        stop_all(senders)


def case_queues_come_and_go() -> None:
    with (
        tun(5, flags=MULTI) as first,
        TunDevice(NAME, MULTI) as second,
        Reader(first.fd) as one,
        Reader(second.fd) as two,
    ):
        senders = start_senders(16)
        for _ in range(10):
            attach_queue(second.fd, False)
            seen = one.packets
            soon(lambda mark=seen: one.packets > mark + 20, "the first queue stalls")
            attach_queue(second.fd, True)
            seen = two.packets
            soon(lambda mark=seen: two.packets > mark + 20, "the second queue stalls")
        stop_all(senders)


def case_file_closed_while_senders_wait() -> None:
    with tun(5, flags=MULTI) as first:
        second = TunDevice(NAME, MULTI)
        second.__enter__()
        senders = start_senders(16)
        time.sleep(0.2)
        second.close()
        with Reader(first.fd) as one:
            seen = one.packets
            soon(lambda: one.packets > seen + 100, "the other queue stalls")
            stop_all(senders)


def case_device_goes_while_senders_wait() -> None:
    with tun(5, flags=TUN):
        sender = Sender(1000, patient=True)
        time.sleep(0.2)
        ip_batch([f"link delete {NAME}"])
        soon(lambda: sender.errors > 0, "the sender is blocked for good")
        check(sender.stop(), "the sender hangs")


@contextmanager
def attached(flags: int) -> Iterator[TunDevice]:
    with TunDevice(NAME, flags) as device:
        yield device


def case_flag_goes_and_comes() -> None:
    """A persistent device, whose applications ask for other flags."""
    try:
        with tun(500, flags=TUN) as device:
            fcntl.ioctl(device.fd, TUNSETPERSIST, 1)
        for turn in range(4):
            with attached(IFF_TUN if turn % 2 else TUN) as device, Reader(device.fd) as reader:
                configure(NAME, txqueuelen=500, qdisc=DEEP, address="")
                senders = start_senders(4, 1000)
                all_finish(senders)
                soon(lambda reader=reader: reader.packets > 100, "nothing arrives")
                if turn % 2 == 0:
                    soon(lambda r=reader: r.packets >= 4000, f"{reader.packets} of 4000 came")
    finally:
        ip_batch([f"link delete {NAME}"])


@each(500, 5)
def case_never_read(ring: int) -> None:
    """The guard frees senders, and a reader that comes then gets backpressure again."""
    account = Account()
    with tun(ring, flags=TUN) as device:
        with udp() as sock:
            fill(sock)
            soon(lambda: charged(sock) == 0, "its packets stay charged", GUARD_S)
            check(dropped() > 0, "nothing was dropped")
        with Reader(device.fd, account) as reader:
            soon(lambda: bool(reader.packets), "nothing is left to read")
            time.sleep(0.2)
            before = dropped()
            senders = start_senders(4, 1000)
            all_finish(senders)
            equal(dropped(), before, "packets dropped after the reader came back")


def case_trickle() -> None:
    """A reader of two packets a second does not hold up its senders for longer than others."""
    with tun(500, flags=TUN) as device, Reader(device.fd, pause_s=0.5), udp() as sock:
        fill(sock)
        soon(lambda: charged(sock) == 0, "its packets stay charged", 2 * GUARD_S)


def case_slow_link() -> None:
    """A reader of 50 packets a second is not stalled."""
    with tun(500, flags=TUN) as device, Reader(device.fd, pause_s=0.02), udp() as sock:
        fill(sock)
        time.sleep(3)
        equal(dropped(), 0, "packets dropped")


def case_edge_triggered() -> None:
    with tun(500, flags=TUN) as device, EdgeReader(device.fd, 16) as reader:
        sender = Sender(1000)
        check(
            sender.finished(20) and reader.reaches(500),
            f"{reader.packets} of 1000 packets were read",
        )
        equal(dropped(), 0, "packets dropped")


def case_vhost_swaps() -> None:
    with tun(5, flags=TAP) as device, client(device, work_ns=SLOW_NS) as reader:
        with flood(2, direct=True) as sent:
            swap_backend(reader)
        all_arrive(reader, sent.offered)


def case_vhost_puts_back() -> None:
    with tun(100, flags=TAP) as device, client(device, slots=SLOTS) as reader:
        taken_and_put_back(device, reader, SLOTS, lambda: time.sleep(0.2))


def case_noqueue() -> None:
    """Nothing can wait without a qdisc: a full ring drops at tx_queue_len."""
    with tun(10, flags=TUN, qdisc="noqueue") as device, udp() as sock:
        for _ in range(30):
            sock.sendto(b"x", (THERE, 9))
        equal(sum(1 for _ in packets(device.fd)), 10, "packets in the ring")
        equal(dropped(), 20, "packets dropped")


def case_multicast_groups() -> None:
    """Several IPv6 multicast groups at once on a local tap, as in librecast's test."""
    groups, count = [f"ff1e::{number:x}" for number in range(1, 9)], 300
    with tun(1000, flags=TAP) as device, Reader(device.fd) as reader:
        Path(f"/proc/sys/net/ipv6/conf/{NAME}/disable_ipv6").write_text("0", encoding="ascii")
        ip_batch([f"address add fd00::1/64 dev {NAME} nodad"])
        index = socket.if_nametoindex(NAME)
        socks = []
        for group in groups:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
            socks.append((sock, group))
        for _ in range(count):
            for sock, group in socks:
                sock.sendto(bytes(1200), (group, 9))
        soon(lambda: reader.packets >= count * len(groups), f"{reader.packets} came")
        equal(dropped(), 0, "packets dropped")
        for sock, _ in socks:
            sock.close()


def queue_stats() -> dict[int, int]:
    """Return the statistics of the device's first queue by attribute, from QSTATS_GET."""
    index = socket.if_nametoindex(NAME)
    asked = attribute(IFINDEX, u32(index)) + attribute(SCOPE, u32(PER_QUEUE))
    reply = GenericFamily("netdev").command(QSTATS_GET, asked, flags=DUMP)
    return {kind: int.from_bytes(value, sys.byteorder) for kind, value in attributes(reply)}


def case_queue_statistics() -> None:
    with tun(5, flags=TUN) as device:
        sender = Sender(100)
        soon(lambda: queue_stats()[STOP] == 1, lambda: f"not one stop: {queue_stats()}")
        equal(queue_stats()[WAKE], 0, "wakes of a stopped queue")
        with Reader(device.fd) as reader:
            check(sender.finished(5), "the sender hangs")
            soon(lambda: reader.packets >= 100, lambda: f"{reader.packets} of 100 came")
        found = queue_stats()
        check(found[WAKE] == found[STOP] > 1, f"stops and wakes: {found}")


run(load=load)
