#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The application's filters, whose drops use no slot, and its steering program."""

from __future__ import annotations

import ctypes
import fcntl
import struct
import time
from collections.abc import Callable

from harness import (
    Account,
    Reader,
    Sender,
    all_drops,
    all_finish,
    check,
    check_delivery,
    counters,
    equal,
    run,
    settled,
    soon,
    start_senders,
    stop_all,
    tun,
)

from guestlib.tundev import (
    IFF_MULTI_QUEUE,
    IFF_TAP,
    IFF_TUN,
    TUNATTACHFILTER,
    TUNDETACHFILTER,
    TUNSETFILTEREBPF,
    TUNSETSTEERINGEBPF,
    TUNSETTXFILTER,
    TunDevice,
)
from proof import bpf

OFF = -1
ALL = 0xFFFF
"""A filter returns the bytes of the packet to keep."""


def set_program(fd: int, what: int, program: int) -> None:
    fcntl.ioctl(fd, what, struct.pack("i", program))


def drops_all(on: Callable[[int], object], off: Callable[[int], object]) -> None:
    """Test a filter on a ring of one slot: it drops all packets, then none.

    Args:
        on, off: attach the filter to the TAP's file, and detach it.
    """
    account = Account(skip=14)
    with tun(1, flags=IFF_TAP) as device:
        on(device.fd)
        check(Sender(200).finished(5), "filtered packets hang their sender")
        equal(all_drops(), {"stack": 200}, "packets filtered")
        equal(counters()["stops"], 0, "stops")
        off(device.fd)
        with Reader(device.fd, account):
            check_delivery(account)


def case_ebpf_drops_all() -> None:
    with bpf.program(bpf.SOCKET_FILTER, bpf.returns(0)) as program:
        drops_all(
            lambda fd: set_program(fd, TUNSETFILTEREBPF, program),
            lambda fd: set_program(fd, TUNSETFILTEREBPF, OFF),
        )


def case_classic_filter_drops_all() -> None:
    # One instruction: return 0.
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0), 8)
    program = struct.pack("H6xQ", 1, ctypes.addressof(code))
    drops_all(
        lambda fd: fcntl.ioctl(fd, TUNATTACHFILTER, program),
        lambda fd: fcntl.ioctl(fd, TUNDETACHFILTER, program),
    )


def case_address_filter_drops_all() -> None:
    # struct tun_filter with one address that matches no packet.
    one = struct.pack("HH6s", 0, 1, b"\x02\0\0\0\0\x77")
    drops_all(
        lambda fd: fcntl.ioctl(fd, TUNSETTXFILTER, one),
        lambda fd: fcntl.ioctl(fd, TUNSETTXFILTER, struct.pack("HH", 0, 0)),
    )


def case_ebpf_drops_one_sender() -> None:
    """Among bursts: the reader is notified of the packets that pass."""
    account = Account(skip=14)
    with (
        tun(16, flags=IFF_TAP) as device,
        bpf.program(bpf.SOCKET_FILTER, bpf.all_but(1001, ALL)) as program,
        Reader(device.fd, account),
    ):
        set_program(device.fd, TUNSETFILTEREBPF, program)
        senders = start_senders(3, 500)
        all_finish(senders)
        soon(lambda: account.count() >= 1000, lambda: f"{account.count()} of 1000 packets arrived")
        equal(settled(senders, account, allowed="stack"), 500, "packets filtered")


def case_steering() -> None:
    """Steer all packets to the second queue, then switch under load."""
    account = Account()
    multi = IFF_TUN | IFF_MULTI_QUEUE
    with (
        tun(5, flags=multi) as first,
        TunDevice(first.name, multi) as second,
        bpf.program(bpf.SOCKET_FILTER, bpf.returns(0)) as to_first,
        bpf.program(bpf.SOCKET_FILTER, bpf.returns(1)) as to_second,
        Reader(first.fd, account, pause_s=0.0002) as one,
        Reader(second.fd, account, pause_s=0.0002) as two,
    ):
        set_program(first.fd, TUNSETSTEERINGEBPF, to_second)
        check_delivery(account, first_port=5000)
        equal((one.packets, two.packets), (0, 400), "packets of the queues")
        senders = start_senders(3)
        for number in range(20):
            set_program(first.fd, TUNSETSTEERINGEBPF, (to_first, to_second, OFF)[number % 3])
            time.sleep(0.02)
        stop_all(senders)
        settled(senders, account, order=False)
        set_program(first.fd, TUNSETSTEERINGEBPF, OFF)


run()
