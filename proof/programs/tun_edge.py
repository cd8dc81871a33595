#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Edge-triggered readers that do not empty the ring: an event loop with a budget, a rate limiter.

A stopped txq sends them no packet, so no edge either.
"""

from __future__ import annotations

import select
import time

from harness import (
    EdgeReader,
    Sender,
    check,
    counters,
    drops,
    each,
    equal,
    parameter,
    run,
    soon,
    tun,
    until_stopped,
)

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
