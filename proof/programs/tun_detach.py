#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Queues are detached and attached, or closed: each packet arrives, or counts as dropped."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import struct

from devices import NAME, counters, mq, multi_queue, tun, until_stopped
from harness import check, equal, run, soon
from traffic import Account, Reader, Sender, all_finish, check_delivery, settled, start_senders, udp

from guestlib.tracing import freed
from guestlib.tundev import (
    IFF_TUN,
    MULTI_TUN,
    TUNSETPERSIST,
    TunDevice,
    attach_queue,
)

SIOCETHTOOL, ETHTOOL_GSTATS = 0x8946, 0x1D


def case_queue_that_moves_is_woken() -> None:
    """The last queue takes the index of a closed one while both txqs are stopped."""
    with multi_queue(2, ring=2) as (first, last):
        mq(2)
        # So many flows that each queue gets packets.
        senders = start_senders(32, 40)
        soon(lambda: min(counters(0)["stops"], counters(1)["stops"]) > 0, "no txq was stopped")
        with Reader(last.fd) as reader:
            first.close()
            all_finish(senders)
            # Two packets were in its ring before.
            check(reader.reaches(3), "the moved queue gets no packets")


def case_last_queue_and_back() -> None:
    """Packets in the ring and the qdisc when the last queue is detached are counted and freed."""
    account = Account()
    with tun(50, flags=MULTI_TUN) as device, freed() as lost:
        senders = [Sender(20)]
        all_finish(senders)
        attach_queue(device.fd, False)
        attach_queue(device.fd, True)
        purged = counters()["drop_purged"]
        check(purged > 0, "the ring held no packet")
        soon(lambda: lost() == 20, lambda: f"{lost()} packets were freed")
        with Reader(device.fd, account):
            senders.append(Sender(100, port=1000))
            all_finish(senders)
            allowed = "drop_purged stack"
            equal(settled(senders, account, allowed=allowed), 20, "packets dropped")


def case_statistics_without_queues() -> None:
    """This was a WARNING of the network core: statistics although their count was 0."""
    with tun(5, flags=MULTI_TUN) as device:
        attach_queue(device.fd, False)
        answer = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_GSTATS, 0), 4096)
        request = struct.pack("16sP16x", NAME.encode(), ctypes.addressof(answer))
        with udp() as sock:
            try:
                fcntl.ioctl(sock, SIOCETHTOOL, request)
            except OSError as error:
                equal(error.errno, errno.EOPNOTSUPP, "errno")
            else:
                raise AssertionError("a device without queues has statistics")


def case_persistent_device_without_reader() -> None:
    account = Account()
    with tun(5) as device:
        fcntl.ioctl(device.fd, TUNSETPERSIST, 1)
        blocked = Sender(10**6)
        until_stopped()
    try:
        check(blocked.stop(), "the sender hangs")
        check(Sender(2000, patient=True).finished(5), "a sender hangs without a reader")
        with TunDevice(NAME, IFF_TUN) as device, Reader(device.fd, account):
            soon(lambda: Sender(1, port=900).finished(1) and account.count() > 0, "no packets")
            check_delivery(account)
            fcntl.ioctl(device.fd, TUNSETPERSIST, 0)
    finally:
        blocked.stop()


run()
