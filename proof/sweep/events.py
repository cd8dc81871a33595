# SPDX-License-Identifier: GPL-2.0-only
"""Events during a row's traffic; each restores the device's state at once."""

from __future__ import annotations

import os
from collections.abc import Callable

from guestlib.process import ip_batch
from guestlib.tundev import attach_queue
from proof.sweep.devices import NAME, Dut
from proof.sweep.readers import Readers

OTHER_SIZES = (3, 600)
"""Values of txqueuelen to set before the row's own."""


def resize(dut: Dut, _readers: Readers) -> None:
    """Shrink the ring, grow it, and restore its length."""
    for size in (*OTHER_SIZES, dut.row.slots):
        dut.resize(size)


def reattach(dut: Dut, readers: Readers) -> None:
    """Detach the device's first queue, which may be the only one, and attach it again."""
    with readers.resting():
        attach_queue(dut.fds[0], False)
        attach_queue(dut.fds[0], True)


def down(dut: Dut, _readers: Readers) -> None:
    """Set the device down and up again."""
    lines = [f"link set dev {NAME} down"]
    if dut.row.kind == "tap" and dut.row.neighbour == "vlan":
        # Otherwise a worker does it later (7.3), and deletes the neighbour that up() adds.
        lines.insert(0, f"link set dev {dut.top} down")
    ip_batch(lines)
    dut.up()


def killed(_dut: Dut, readers: Readers) -> None:
    """Kill the reader, and start another one."""
    readers.kill()
    readers.start()


def requdisc(dut: Dut, _readers: Readers) -> None:
    """Replace the qdisc by another kind, and then by a new one of its own kind."""
    dut.set_qdisc("pfifo limit 100")
    dut.set_qdisc(dut.row.qdisc)


def netns(dut: Dut, _readers: Readers) -> None:
    """Move the device to another namespace and back."""
    ip_batch([f"link set dev {NAME} netns away"])
    ip_batch([f"link set dev {NAME} netns {os.getpid()}"], netns="away")
    dut.set_qdisc(dut.row.qdisc)
    dut.address_it()


def swap(_dut: Dut, readers: Readers) -> None:
    """Detach vhost-net from the device and attach it again."""
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
"""Events that need a reader."""
LOSES = frozenset({"reattach", "down", "netns", "requdisc", "resize"})
"""Events during which the network core may drop packets."""
