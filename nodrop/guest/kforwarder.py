# SPDX-License-Identifier: GPL-2.0-only
"""The in-kernel forwarder, by its device file (traffic/kreader/kforwarder.h)."""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass

from nodrop.guest import device
from nodrop.guest.failure import GuestError

DEVICE = "/dev/nodrop-kforwarder"
_START = struct.Struct("iiiII")
_COUNTS = struct.Struct("10Qi4x")
FLAG_ONE_WAY = 1

IOC_START = device.ioc(device.IOC_WRITE, 0xD8, _START.size)
IOC_READ = device.ioc(device.IOC_READ, 0xD9, _COUNTS.size)
IOC_STOP = device.ioc(device.IOC_READ, 0xDA, _COUNTS.size)


@dataclass(frozen=True)
class Way:
    """``struct kforwarder_way``: what went one way."""

    packets: int
    bytes: int
    send_errors: int


@dataclass(frozen=True)
class Counts:
    """``struct kforwarder_counts``; times are CLOCK_MONOTONIC in ns.

    Attributes:
        there: from the first device to the second.
        back: the other way.
        idle_ns: time asleep because there was nothing to forward.
    """

    there: Way
    back: Way
    now_ns: int
    idle_ns: int
    voluntary_switches: int
    involuntary_switches: int

    @property
    def packets(self) -> int:
        """Packets of both ways."""
        return self.there.packets + self.back.packets

    @property
    def send_errors(self) -> int:
        """Packets that the other device did not take, of both ways."""
        return self.there.send_errors + self.back.send_errors


def rates(first: Counts, last: Counts) -> dict[str, float]:
    """Return what the forwarder did between two moments, as metrics."""
    window_ns = last.now_ns - first.now_ns
    window_s = window_ns / 1e9
    idle_ns = last.idle_ns - first.idle_ns
    packets = last.packets - first.packets
    switches = last.involuntary_switches - first.involuntary_switches
    sleeps = last.voluntary_switches - first.voluntary_switches
    return {
        "forwarded_pps": packets / window_s,
        "reader_idle_share": idle_ns / window_ns,
        "reader_busy_us_per_packet": (window_ns - idle_ns) / 1e3 / max(packets, 1),
        "reader_involuntary_switches_per_s": switches / window_s,
        "reader_sleeps_per_s": sleeps / window_s,
    }


class KernelForwarder(device.DeviceFile):
    """Carries packets between two tun files until it is closed; a context manager.

    Args:
        there: an attached /dev/net/tun file.
        back: another with equal headers.
        cpu: CPU to stay on, -1 for any.
        work_ns: busy time per packet, ns.
        one_way: take packets from the first file only.
    """

    def __init__(
        self, there: int, back: int, *, cpu: int = -1, work_ns: int = 0, one_way: bool = False
    ) -> None:
        super().__init__(DEVICE)
        self._start = _START.pack(there, back, cpu, work_ns, FLAG_ONE_WAY if one_way else 0)

    def _set_up(self) -> None:
        fcntl.ioctl(self._fd, IOC_START, self._start)

    def read(self) -> Counts:
        """Return the counts so far.

        Raises:
            GuestError: the forwarder ended with an error.
        """
        return self._counts(IOC_READ)

    def stop(self) -> Counts:
        """End the forwarder and return its last counts."""
        return self._counts(IOC_STOP)

    def _counts(self, request: int) -> Counts:
        values = _COUNTS.unpack(fcntl.ioctl(self._fd, request, bytes(_COUNTS.size)))
        *numbers, error = values
        if error:
            raise GuestError(f"the in-kernel forwarder ended: {os.strerror(-error)}")
        return Counts(Way(*numbers[0:3]), Way(*numbers[3:6]), *numbers[6:10])
