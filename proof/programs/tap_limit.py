#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""How many frames a tap's ring takes, charged ones and others."""

from __future__ import annotations

import os
import socket

from harness import check, each, equal, soon
from tap_sockets import MOST, TapFlow, counters, drain, drops, flows, run_taps

from guestlib.environment import GuestError
from guestlib.process import ip_batch
from guestlib.sockets import charged
from guestlib.taps import INT_MAX, NAME, rx_dropped

MANY = 60
"""Sockets; their send buffers exceed all slots."""
LONGEST = 32_767
"""The largest txqueuelen that all kernels accept."""
RESERVE = 4096
"""NODROP_HOLD_RESERVE."""


def copying(flow: TapFlow) -> None:
    """Make a flow's socket broadcast: the copies are not charged."""
    flow.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    flow.sockets[0].connect(("10.9.0.255", 9))


def bound(ring: int, most: int) -> None:
    """Fail unless exactly ``most`` charged frames are queued until they are read."""
    with flows(MANY, ring=ring) as (tap, (flow,)):
        made, before = flow.sockets, rx_dropped()
        flow.send_one(0)
        one = charged(made[0])
        flow.fill(most=most + 500)
        beyond = sum(flow.sent) - most
        soon(
            lambda: counters()["ring"] + rx_dropped() - before == sum(flow.sent),
            lambda: f"{counters()} of {sum(flow.sent)}, {rx_dropped() - before} were dropped",
        )
        equal(counters()["ring"], most, f"charged frames in a ring of {ring}")
        equal(drops(), {"drop_full": beyond}, "causes of drops")
        equal(rx_dropped() - before, beyond, "packets dropped")
        equal(sum(map(charged, made)), most * one, "bytes charged to sockets")
        flow.read_all(tap.fd, most)
        flow.uncharged()
        flow.fill(most=sum(flow.sent) + 100)
        flow.read_all(tap.fd, most + 100)
        equal(rx_dropped() - before, beyond, "packets dropped after the ring was read")


@each(5, 500)
def case_charged_frames_of_a_ring(ring: int) -> None:
    """However many sockets send, at most MOST charged frames exceed a short txqueuelen."""
    bound(ring, MOST)


def case_a_longer_ring_takes_no_less_than_with_stock() -> None:
    """A txqueuelen above MOST is the bound itself, and other frames keep their slots."""
    ring = 80 * MANY
    bound(ring, ring)
    with flows(MANY, 1, ring=ring) as (tap, (flow, copies)):
        copying(copies)
        flow.fill(most=ring)
        for most in range(256, RESERVE + 1, 256):
            copies.fill(most=most)
            soon(lambda most=most: counters()["ring"] == ring + most, lambda: f"{counters()}")
        equal(drops(), {}, "causes of drops")
        copies.fill(most=RESERVE + 10)
        soon(lambda: drops() == {"drop_full": 10}, lambda: f"{counters()}")
        equal(counters()["ring"], ring + RESERVE, "frames in a full ring")
        flow.read_all(tap.fd, ring)


def case_the_longest_ring() -> None:
    """A txqueuelen that the kernel refuses has no effect."""
    with flows(1) as (tap, (flow,)):
        ip_batch([f"link set dev {NAME} txqueuelen {LONGEST}"])
        try:
            ip_batch([f"link set dev {NAME} txqueuelen {INT_MAX}"])
        except GuestError:
            equal(counters()["limit"], LONGEST, "the limit")
        else:
            check(False, f"txqueuelen {INT_MAX} was accepted")
        flow.send_one(0)
        flow.read_all(tap.fd, 1)


def case_other_frames_are_counted_by_themselves() -> None:
    """Charged frames beyond txqueuelen leave txqueuelen slots for uncharged frames."""
    ring = 100
    with flows(16, 1, ring=ring) as (tap, (flow, copies)):
        copying(copies)
        flow.fill()
        full = counters()["ring"]
        check(full > 2 * ring, f"only {full} frames are charged")
        copies.fill(most=ring + 50)
        soon(lambda: drops() == {"drop_unheld": 50}, lambda: f"{drops()}")
        equal(counters()["ring"], full + ring, "frames in the ring")
        # For each uncharged frame that is read, another fits, wherever it was in the ring.
        flow.read(tap.fd, most=full + 30)
        copies.fill(most=ring + 50 + 40)
        soon(lambda: drops() == {"drop_unheld": 60}, lambda: f"{drops()}")
        # The array and the counts beside it grow, and the array shrinks.
        for size in (50 * ring, ring):
            ip_batch([f"link set dev {NAME} txqueuelen {size}"])
            equal(counters()["limit"], size, "the ring's limit")
        copies.fill(most=ring + 50 + 40 + 10)
        soon(lambda: drops() == {"drop_unheld": 70}, lambda: f"{drops()} after resizes")
        flow.read(tap.fd, most=20)
        copies.fill(most=ring + 50 + 40 + 10 + 20)
        soon(lambda: counters()["ring"] == ring, lambda: f"{counters()} after resizes")


def case_a_smaller_ring_keeps_what_it_holds() -> None:
    """The frames may exceed all slots of a new ring of that txqueuelen."""
    ring = 6000
    with flows(MANY, 1, ring=ring) as (tap, (flow, copies)):
        copying(copies)
        before = rx_dropped()
        flow.fill(most=4500)
        for most in range(250, RESERVE + 1, 250):
            copies.fill(most=most)
            soon(lambda most=most: counters()["ring"] == 4500 + most, lambda: f"{counters()}")
        queued = sum(flow.sent) + sum(copies.sent)
        for size in (500, 5, ring, 0):
            ip_batch([f"link set dev {NAME} txqueuelen {size}"])
            equal(counters()["limit"], size, "the ring's limit")
            equal(counters()["ring"], queued, f"frames in the ring with a txqueuelen of {size}")
        copies.fill(most=sum(copies.sent) + 10)
        soon(lambda: drops() == {"drop_unheld": 10}, lambda: f"{counters()}")
        equal(drain(tap.fd), queued, "frames read")
        equal(rx_dropped() - before, 10, "packets dropped")


def case_each_queue_is_counted() -> None:
    with flows(16) as (tap, (flow,)):
        second = os.open(tap.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            flow.fill(most=200)
            soon(lambda: sum(in_rings()) == sum(flow.sent), lambda: f"{in_rings()}")
            check(min(in_rings()) > 0, f"{in_rings()}")
        finally:
            os.close(second)


def in_rings() -> list[int]:
    return [counters(queue)["ring"] for queue in range(2)]


run_taps()
