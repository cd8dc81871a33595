# SPDX-License-Identifier: GPL-2.0-only
"""The in-kernel reader, by its device file (traffic/kreader/kreader.h)."""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass

from nodrop.guest import device
from nodrop.guest.failure import GuestError

DEVICE = "/dev/nodrop-kreader"
_START = struct.Struct("iiII")
_COUNTS = struct.Struct("6QiIQ")
FLAG_FIFO = 1

IOC_START = device.ioc(device.IOC_WRITE, 0xD0, _START.size)
IOC_READ = device.ioc(device.IOC_READ, 0xD1, _COUNTS.size)
IOC_STOP = device.ioc(device.IOC_READ, 0xD2, _COUNTS.size)


@dataclass(frozen=True)
class Counts:
    """``struct kreader_counts``; times are CLOCK_MONOTONIC in ns.

    Attributes:
        others: packets that are no IPv4, of an Ethernet device.
    """

    packets: int
    bytes: int
    now_ns: int
    started_ns: int
    voluntary_switches: int
    involuntary_switches: int
    error: int
    running: int
    others: int


class KernelReader(device.DeviceFile):
    """Reads a tun file in the kernel until it is closed; a context manager.

    Args:
        tun_fd: an attached /dev/net/tun file.
        cpu: CPU to stay on, -1 for any.
        work_ns: busy time per packet, ns.
        fifo: run as SCHED_FIFO, ahead of a sender on the same CPU.
    """

    def __init__(self, tun_fd: int, *, cpu: int = -1, work_ns: int = 0, fifo: bool = False) -> None:
        super().__init__(DEVICE)
        self._start = _START.pack(tun_fd, cpu, work_ns, FLAG_FIFO if fifo else 0)

    def _set_up(self) -> None:
        fcntl.ioctl(self._fd, IOC_START, self._start)

    def read(self) -> Counts:
        """Return the counts so far.

        Raises:
            GuestError: the reader ended with an error.
        """
        return self._counts(IOC_READ)

    def stop(self) -> Counts:
        """End the reader and return its last counts."""
        return self._counts(IOC_STOP)

    def stop_any(self) -> Counts:
        """As :meth:`stop`, also a reader that ended by itself: ``error`` says why."""
        return self._ask(IOC_STOP)

    def _counts(self, request: int) -> Counts:
        counts = self._ask(request)
        if counts.error:
            raise GuestError(f"the in-kernel reader ended: {os.strerror(-counts.error)}")
        return counts

    def _ask(self, request: int) -> Counts:
        return Counts(*_COUNTS.unpack(fcntl.ioctl(self._fd, request, bytes(_COUNTS.size))))
