#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The application's filters, whose drops use no slot, and its steering program."""

from __future__ import annotations

import fcntl
import struct
import time

from devices import tun
from harness import equal, run, soon
from traffic import Account, Reader, all_finish, check_delivery, settled, start_senders, stop_all

from guestlib.tundev import (
    IFF_MULTI_QUEUE,
    IFF_TAP,
    IFF_TUN,
    TUNSETFILTEREBPF,
    TUNSETSTEERINGEBPF,
    TunDevice,
)
from proof import bpf

OFF = -1
ALL = 0xFFFF
"""A filter returns the bytes of the packet to keep."""


def set_program(fd: int, what: int, program: int) -> None:
    fcntl.ioctl(fd, what, struct.pack("i", program))


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
