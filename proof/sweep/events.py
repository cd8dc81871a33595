# SPDX-License-Identifier: GPL-2.0-only
"""What happens to a row's device while packets are on their way; each is undone at once."""

from __future__ import annotations

import os
from collections.abc import Callable

from lab.guest.process import ip_batch
from lab.guest.tundev import attach_queue
from proof.sweep.devices import NAME, Victim
from proof.sweep.readers import Readers

OTHER_SIZES = (3, 600)
"""txqueuelen, on the way to another one and back."""


def resize(victim: Victim, _readers: Readers) -> None:
    """Make the ring small and large and what it was."""
    for size in (*OTHER_SIZES, victim.row.slots):
        victim.resize(size)


def reattach(victim: Victim, readers: Readers) -> None:
    """Take the device its first queue, which may be the only one, and give it back."""
    with readers.resting():
        attach_queue(victim.fds[0], False)
        attach_queue(victim.fds[0], True)


def down(victim: Victim, _readers: Readers) -> None:
    """Take the device down and up again."""
    lines = [f"link set dev {NAME} down"]
    if victim.row.kind == "tap" and victim.row.neighbour == "vlan":
        # Or else a worker does it later (7.3), and the neighbour that up() adds goes with it.
        lines.insert(0, f"link set dev {victim.top} down")
    ip_batch(lines)
    victim.up()


def killed(_victim: Victim, readers: Readers) -> None:
    """Kill the reader, and have another one."""
    readers.kill()
    readers.start()


def requdisc(victim: Victim, _readers: Readers) -> None:
    """Replace the qdisc, by another one and by one as before."""
    victim.set_qdisc("pfifo limit 100")
    victim.set_qdisc(victim.row.qdisc)


def netns(victim: Victim, _readers: Readers) -> None:
    """Move the device to another namespace and back."""
    ip_batch([f"link set dev {NAME} netns away"])
    ip_batch([f"link set dev {NAME} netns {os.getpid()}"], netns="away")
    victim.set_qdisc(victim.row.qdisc)
    victim.address_it()


def swap(_victim: Victim, readers: Readers) -> None:
    """Take vhost-net off the device and put it back."""
    readers.swap()


EVENTS: dict[str, Callable[[Victim, Readers], None]] = {
    "none": lambda _victim, _readers: None,
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
