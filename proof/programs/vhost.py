# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the tests of vhost-net: a client, a flood, and its accounting."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness import NAME, check, dropped, equal, soon

from guestlib.environment import Environment
from guestlib.netstats import qdisc_counters
from guestlib.pktgen import Pktgen
from guestlib.tundev import TunDevice
from guestlib.vhost_client import VhostClient

SET_OWNER, SET_MEM_TABLE = 0xAF01, 0x4008AF03
SET_NUM, SET_ADDR, SET_BACKEND = 0x4008AF10, 0x4028AF11, 0x4008AF30
RX, TX = 0, 1
"""Ioctls and rings of vhost-net."""

SLOW_NS = 100_000
"""Work per packet that makes a client slower than any sender, even on debug kernels."""


class Vhost:
    """An open /dev/vhost-net with two empty rings, and no virtual machine."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(3 * 4096)
        # Align the rings in the memory table.
        start = (ctypes.addressof(self._memory) + 4095) & ~4095
        self.fd = os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._prepare(start)
        except OSError:
            self.close()
            raise

    def _prepare(self, start: int) -> None:
        fcntl.ioctl(self.fd, SET_OWNER)
        fcntl.ioctl(self.fd, SET_MEM_TABLE, struct.pack("=II4Q", 1, 0, start, 8192, start, 0))
        for index in (RX, TX):
            place = start + 4096 * index
            fcntl.ioctl(self.fd, SET_NUM, struct.pack("=II", index, 16))
            rings = (place, place + 1024, place + 2048, 0)
            fcntl.ioctl(self.fd, SET_ADDR, struct.pack("=II4Q", index, 0, *rings))

    def close(self) -> None:
        """Close it; packets that it has taken from a TAP are put back."""
        os.close(self.fd)

    def backend(self, index: int, fd: int) -> int:
        """Set a ring's backend; return the errno, or 0."""
        try:
            fcntl.ioctl(self.fd, SET_BACKEND, struct.pack("=Ii", index, fd))
        except OSError as error:
            return error.errno or 0
        return 0


def client(device: TunDevice, *, slots: int = 256, work_ns: int = 0) -> VhostClient:
    """Return a vhost-net client for a device."""
    return VhostClient(Environment.from_environ(), device.fd, slots=slots, work_ns=work_ns)


@dataclass
class Flood:
    """Packets offered to the device or its qdisc; known at the flood's end."""

    offered: int = 0


@contextmanager
def flood(senders: int, *, direct: bool) -> Iterator[Flood]:
    """Send as fast as possible for the block, past the qdisc (``direct``) or through it."""
    found = Flood()
    with Pktgen(NAME, senders=senders, packet_bytes=60, direct=direct) as pktgen:
        with pktgen.sending():
            yield found
        found.offered = sum(sender.offered for sender in pktgen.results())


def all_arrive(reader: VhostClient, offered: int) -> None:
    """Fail unless each packet arrives or was dropped by the qdisc at its limit."""

    def missing() -> int:
        return offered - qdisc_counters(NAME).drops - reader.packets

    check(offered > 0, "no packet was sent")
    soon(lambda: missing() <= 0, "packets are lost or stuck")
    equal(missing(), 0, "packets missing")
    equal(dropped(), 0, "packets dropped")
