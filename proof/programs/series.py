#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The drivers with the patches of series/: no packet dropped, no queue stopped for ever.

Its devices are opened with IFF_BACKPRESSURE. Without series' modules, as in a kernel with the
patches, the kernel's own drivers are tested.
"""

from __future__ import annotations

import fcntl
import socket
import sys
import time

from devices import DEEP, NAME, THERE, dropped, tun
from harness import check, drivers, each, equal, run, soon
from traffic import (
    Account,
    EdgeReader,
    Reader,
    Sender,
    all_arrive,
    all_finish,
    client,
    fill,
    flood,
    packets,
    start_senders,
    stop_all,
    taken_and_put_back,
    udp,
)

from guestlib.drivers import IFF_BACKPRESSURE, modules
from guestlib.environment import Environment
from guestlib.netlink import DUMP, GenericFamily, attribute, attributes, u32
from guestlib.process import ip_batch
from guestlib.sockets import charged
from guestlib.tundev import (
    IFF_MULTI_QUEUE,
    IFF_TAP,
    IFF_TUN,
    TUNSETPERSIST,
    TunDevice,
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


@each(500, 5, 1, 0)
def case_two_senders_past_the_qdisc(ring: int) -> None:
    """Two pktgen threads, of which the second finds the queue running that the first stops."""
    with tun(ring, flags=TAP) as device, client(device) as reader:
        with flood(2, direct=True) as sent:
            time.sleep(1)
        all_arrive(reader, sent.offered)


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


def case_flag_goes_and_comes() -> None:
    """A persistent device, whose applications ask for other flags."""
    try:
        with tun(500, flags=TUN) as device:
            fcntl.ioctl(device.fd, TUNSETPERSIST, 1)
        for turn in range(4):
            with (
                TunDevice(NAME, IFF_TUN if turn % 2 else TUN) as device,
                Reader(device.fd) as reader,
            ):
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


def case_edge_triggered() -> None:
    with tun(500, flags=TUN) as device, EdgeReader(device.fd, 16) as reader:
        sender = Sender(1000)
        check(
            sender.finished(20) and reader.reaches(500),
            f"{reader.packets} of 1000 packets were read",
        )
        equal(dropped(), 0, "packets dropped")


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
