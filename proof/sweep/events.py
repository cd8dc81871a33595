# SPDX-License-Identifier: GPL-2.0-only
"""What happens to a row's device while packets are on their way; each is undone at once."""

from __future__ import annotations

import os
from collections.abc import Callable

from lab.guest.command import ip_batch
from lab.guest.tundev import attach_queue
from proof.sweep.devices import NAME, Dut
from proof.sweep.readers import Readers

OTHER_SIZES = (3, 600)
"""txqueuelen, on the way to another one and back."""


def resize(dut: Dut, _readers: Readers) -> None:
    """Make the ring small and large and what it was."""
    for size in (*OTHER_SIZES, dut.row.slots):
        dut.resize(size)


def reattach(dut: Dut, readers: Readers) -> None:
    """Take the device its first queue, which may be the only one, and give it back."""
    with readers.resting():
        attach_queue(dut.fds[0], False)
        attach_queue(dut.fds[0], True)


def down(dut: Dut, _readers: Readers) -> None:
    """Take the device down and up again."""
    lines = [f"link set dev {NAME} down"]
    if dut.row.kind == "tap" and dut.row.neighbour == "vlan":
        # Or else a worker does it later (7.3), and the neighbour that up() adds goes with it.
        lines.insert(0, f"link set dev {dut.top} down")
    ip_batch(lines)
    dut.up()


def killed(_dut: Dut, readers: Readers) -> None:
    """Kill the reader, and have another one."""
    readers.kill()
    readers.start()


def requdisc(dut: Dut, _readers: Readers) -> None:
    """Replace the qdisc, by another one and by one as before."""
    dut.set_qdisc("pfifo limit 100")
    dut.set_qdisc(dut.row.qdisc)


def netns(dut: Dut, _readers: Readers) -> None:
    """Move the device to another namespace and back."""
    ip_batch([f"link set dev {NAME} netns away"])
    ip_batch([f"link set dev {NAME} netns {os.getpid()}"], netns="away")
    dut.set_qdisc(dut.row.qdisc)
    dut.address_it()


def swap(_dut: Dut, readers: Readers) -> None:
    """Take vhost-net off the device and put it back."""
    readers.swap()


EVENTS: dict[str, Callable[[Dut, Readers], None]] = {
    "none": lambda _dut, _readers: None,
    "resize": resize,
    "reattach": reattach,
    "down": down,
    "killed": killed,
    "requdisc": requdisc,
    "netns": netns,
    "swap": swap,
}
NEEDS_READER = frozenset({"killed", "swap"})
"""Without a reader there is nothing to be done."""
LOSES = frozenset({"reattach", "down", "netns", "requdisc", "resize"})
"""While it happens the network core may throw packets away."""
