# SPDX-License-Identifier: GPL-2.0-only
"""The in-kernel forwarder, by its device file (traffic/kreader/kforwarder.h)."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from dataclasses import dataclass

from nodrop.guest import device
from nodrop.guest.failure import GuestError

DEVICE = "/dev/nodrop-kforwarder"
_START = struct.Struct("iiiI")
_COUNTS = struct.Struct("10Qii")

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
        cpu_ns: CPU time of the thread, with the softirqs that ran on top of it.
    """

    there: Way
    back: Way
    now_ns: int
    idle_ns: int
    voluntary_switches: int
    involuntary_switches: int
    cpu_ns: int

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
    window_s = (last.now_ns - first.now_ns) / 1e9
    packets = last.packets - first.packets
    switches = last.involuntary_switches - first.involuntary_switches
    sleeps = last.voluntary_switches - first.voluntary_switches
    return {
        "forwarded_pps": packets / window_s,
        "reader_idle_share": (last.idle_ns - first.idle_ns) / 1e9 / window_s,
        "reader_cpu_us_per_packet": (last.cpu_ns - first.cpu_ns) / 1e3 / max(packets, 1),
        "reader_involuntary_switches_per_s": switches / window_s,
        "reader_sleeps_per_s": sleeps / window_s,
    }


def cpu_clock(pid: int) -> int:
    """Return the id of the clock that shows a process's CPU time (CPUCLOCK_SCHED)."""
    return ~pid << 3 | 2


class KernelForwarder(device.DeviceFile):
    """Carries packets between two tun files until it is closed; a context manager.

    Args:
        tun_fds: two attached /dev/net/tun files with equal headers.
        cpu: CPU to stay on, -1 for any.
        work_ns: busy time per packet, ns.
    """

    def __init__(self, tun_fds: tuple[int, int], *, cpu: int = -1, work_ns: int = 0) -> None:
        super().__init__(DEVICE)
        self._start = _START.pack(*tun_fds, cpu, work_ns)

    def _set_up(self) -> None:
        fcntl.ioctl(self._fd, IOC_START, self._start)

    def read(self) -> Counts:
        """Return the counts so far.

        Raises:
            GuestError: the forwarder ended with an error.
        """
        return self._counts(IOC_READ)

    def stop(self) -> Counts:
        """End the forwarder and return its last counts, without its CPU time."""
        return self._counts(IOC_STOP)

    def _counts(self, request: int) -> Counts:
        values = _COUNTS.unpack(fcntl.ioctl(self._fd, request, bytes(_COUNTS.size)))
        *numbers, error, pid = values
        if error:
            raise GuestError(f"the in-kernel forwarder ended: {os.strerror(-error)}")
        cpu_ns = time.clock_gettime_ns(cpu_clock(pid)) if pid else 0
        return Counts(Way(*numbers[0:3]), Way(*numbers[3:6]), *numbers[6:10], cpu_ns)
