#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Switching: the application's flag, the administrator's default, the device's private flag."""

from __future__ import annotations

import fcntl
import struct
import time

from devices import NAME, all_drops, counters, drops, tun, until_stopped
from harness import check, equal, parameter, run, soon
from traffic import Account, Reader, Sender, check_delivery, settled, start_senders, stop_all

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.tundev import IFF_TUN, TUNGETIFF, TunDevice, known_flags
from nodrop.host import ethtool

REQUESTED = IFF_TUN | IFF_BACKPRESSURE
ON, OFF = True, False


def requested(device: TunDevice) -> bool:
    answer = fcntl.ioctl(device.fd, TUNGETIFF, bytes(40))
    return bool(struct.unpack("16xH22x", answer)[0] & IFF_BACKPRESSURE)


def flag() -> bool:
    return ethtool.private_flags(NAME)["nodrop"]


def switch(on: bool) -> None:
    ethtool.set_private_flag(NAME, "nodrop", on)


def overfill() -> dict[str, int]:
    """Send 100 packets that are not read; return their drops."""
    before = all_drops()
    check(Sender(100).finished(5), "the sender hangs although its send buffer takes all")
    return all_drops(before)


def case_flags_are_the_applications() -> None:
    check(bool(known_flags() & IFF_BACKPRESSURE), "TUNGETFEATURES lacks the flag")
    for flags in (IFF_TUN, REQUESTED):
        with tun(10, flags=flags) as device:
            equal(requested(device), flags == REQUESTED, "the application's flag")
            equal(flag(), ON, "the private flag")


def case_default_off() -> None:
    with parameter("nodrop", "N"):
        with tun(10):
            equal(flag(), OFF, "the flag")
            equal(overfill(), {"drop_off": 90}, "packets dropped")
            equal(counters()["stops"], 0, "stops")
        with tun(10, flags=REQUESTED):
            equal(flag(), ON, "the flag of a device whose application requested it")
            equal(overfill(), {}, "packets dropped")


def case_default_holds_for_existing_devices() -> None:
    with tun(10), parameter("nodrop", "N"):
        equal(flag(), OFF, "the flag")
        equal(overfill(), {"drop_off": 90}, "packets dropped")
        equal(counters()["stops"], 0, "stops")


def case_private_flag_overrides_the_default() -> None:
    with tun(10, flags=REQUESTED):
        switch(OFF)
        equal(flag(), OFF, "the flag")
        equal(overfill(), {"drop_off": 90}, "packets dropped")
    with parameter("nodrop", "N"), tun(10):
        switch(ON)
        equal(flag(), ON, "the flag")
        equal(overfill(), {}, "packets dropped")


def case_off_unblocks_senders() -> None:
    with parameter("guard_ms", "0"), tun(5):
        sender = Sender(3000)
        until_stopped()
        check(sender.blocked(0.3), "the sender is not blocked")
        switch(OFF)
        check(sender.finished(5), "the sender hangs")
        soon(lambda: drops() == {"drop_off": 2995}, lambda: f"drops: {all_drops()}")
        switch(ON)
        equal(overfill(), {}, "packets dropped")


def case_off_and_on_under_load() -> None:
    account = Account()
    with tun(5) as device, Reader(device.fd, account, pause_s=0.0003):
        senders = start_senders(2)
        number = 0
        while number < 20 or number % 2 or not drops():
            switch(number % 2 == 1)
            number += 1
            time.sleep(0.02)
        stop_all(senders)
        settled(senders, account, allowed="drop_off")
        check_delivery(account)


def case_idle_counts_nothing() -> None:
    with tun(500) as device, Reader(device.fd) as reader:
        for number in range(40):
            check(Sender(1).finished(5) and reader.reaches(number + 1), "packets are missing")
        moved = {name for name, value in counters().items() if value}
        # The first two are gauges, and the third counts what was delivered.
        equal(moved - {"limit", "pace_ns", "taken"}, set(), "counters that moved")


run()
