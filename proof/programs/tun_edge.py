#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Readers that wait for an edge or a signal and do not empty the ring: an event loop with a budget.

A stopped txq sends them no packet, so no edge either.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import signal
import time

from devices import counters, drops, tun, until_stopped
from harness import check, each, equal, parameter, run, soon
from traffic import EdgeReader, Sender, packets

from guestlib.environment import time_limit

PACKETS = 1000


@each(8, 16, 24, 40)
def case_budget_of(budget: int) -> None:
    """A reader with this budget gets all packets, without the help of the guard."""
    # Else the limit is 4 at first, and no budget leaves any of these behind.
    with parameter("guard_ms", "0"), parameter("target_us", "100000000"), tun(500) as device:
        sender = Sender(PACKETS)
        until_stopped()
        with EdgeReader(device.fd, budget) as reader:
            check(
                sender.finished(20) and reader.reaches(PACKETS - 500),
                f"{reader.packets} of {PACKETS} packets were read",
            )
        equal(drops(), {}, "drops")


def case_signals() -> None:
    """A reader that takes 40 packets at each SIGIO gets all."""
    taken, end = 0, time.monotonic() + time_limit(30)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
    with parameter("guard_ms", "0"), parameter("target_us", "100000000"), tun(500) as device:
        fcntl.fcntl(device.fd, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(device.fd, fcntl.F_GETFL) | os.O_NONBLOCK | os.O_ASYNC
        fcntl.fcntl(device.fd, fcntl.F_SETFL, flags)
        sender = Sender(PACKETS)
        until_stopped()
        while taken < PACKETS - 500 and time.monotonic() < end:
            if signal.sigtimedwait({signal.SIGIO}, 1):
                taken += sum(1 for _ in itertools.islice(packets(device.fd), 40))
        check(taken >= PACKETS - 500, f"{taken} of {PACKETS} packets were read")
        check(sender.finished(20), "the sender hangs")
        equal(drops(), {}, "drops")


def case_no_event_without_a_packet() -> None:
    """A reader that empties the ring is woken by packets alone."""
    with tun(500) as device, EdgeReader(device.fd, 10**6) as reader, select.epoll() as epoll:
        check(Sender(PACKETS).finished(20) and reader.reaches(PACKETS), "packets are missing")
        soon(lambda: counters()["ring"] == 0, "the ring is not empty")
        epoll.register(device.fd, select.EPOLLIN | select.EPOLLET)
        # Longer than several samples of the guard.
        time.sleep(0.3)
        equal(epoll.poll(0), [], "events")


run()
