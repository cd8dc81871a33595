# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of vhost-net share: a client, a flood, and its account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness import NAME, check, dropped, equal, soon

from nodrop.guest.counters import qdisc_counters
from nodrop.guest.environment import Environment
from nodrop.guest.pktgen import Pktgen
from nodrop.guest.tundev import TunDevice
from nodrop.guest.vhost import VhostClient

SLOW_NS = 100_000
"""A client that works so long on a packet is slower than any sender, on debug kernels too."""


def client(device: TunDevice, *, slots: int = 256, work_ns: int = 0) -> VhostClient:
    """A client of a device."""
    return VhostClient(Environment.from_environ(), device.fd, slots=slots, work_ns=work_ns)


@dataclass
class Flood:
    """Packets that were given to the device or to its qdisc; known at the flood's end."""

    offered: int = 0


@contextmanager
def flood(senders: int, *, direct: bool) -> Iterator[Flood]:
    """Send for the block, as fast as can be, past the qdisc (``direct``) or through it."""
    found = Flood()
    with Pktgen(NAME, senders=senders, packet_bytes=60, direct=direct) as pktgen:
        with pktgen.sending():
            yield found
        found.offered = sum(sender.offered for sender in pktgen.results())


def all_arrive(reader: VhostClient, offered: int) -> None:
    """Fail unless each packet is delivered or was dropped by the qdisc at its limit."""

    def missing() -> int:
        return offered - qdisc_counters(NAME).drops - reader.counts().packets

    check(offered > 0, "nothing was sent")
    soon(lambda: missing() <= 0, "packets are missing: lost or stuck")
    equal(missing(), 0, "packets missing")
    equal(dropped(), 0, "packets lost")
