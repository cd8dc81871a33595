# SPDX-License-Identifier: GPL-2.0-only
"""Controls the in-kernel reader and null VPN through its device file (kreader.h)."""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass

from guestlib.environment import GuestError
from guestlib.tundev import IOC_READ, IOC_WRITE, DeviceFile, ioc

DEVICE = "/dev/nodrop-kreader"
_START = struct.Struct("iiiIII")
_COUNTS = struct.Struct("11Qi4x")
FLAG_FIFO, FLAG_ONE_WAY = 1, 2

KREADER_START = ioc(IOC_WRITE, 0xD0, _START.size)
KREADER_READ = ioc(IOC_READ, 0xD1, _COUNTS.size)
KREADER_STOP = ioc(IOC_READ, 0xD2, _COUNTS.size)


@dataclass(frozen=True)
class Direction:
    """``struct kreader_direction``: the traffic in one direction."""

    packets: int
    bytes: int = 0
    send_errors: int = 0


@dataclass(frozen=True)
class Counts:
    """``struct kreader_counts``; times are CLOCK_MONOTONIC in ns.

    Attributes:
        forward: from the first device.
        reverse: from the second device, if there are two.
        idle_ns: time asleep because neither of two devices had a packet.
        others: non-IPv4 packets, if there is only one device, with Ethernet.
    """

    forward: Direction
    reverse: Direction
    now_ns: int
    idle_ns: int
    voluntary_switches: int
    involuntary_switches: int
    others: int

    @property
    def packets(self) -> int:
        """Packets in both directions."""
        return self.forward.packets + self.reverse.packets

    @property
    def send_errors(self) -> int:
        """Packets that the other device did not accept, in both directions."""
        return self.forward.send_errors + self.reverse.send_errors


def rates(first: Counts, last: Counts) -> dict[str, float]:
    """Return a null VPN's rates between two moments, as metrics."""
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


class KernelReader(DeviceFile):
    """Reads a tun file in the kernel until it is closed; a context manager.

    Args:
        tun_fd: an attached /dev/net/tun file.
        far_fd: a second one with the same headers, for forwarding between both; -1: packets are
            discarded.
        cpu: the thread's CPU, -1: any.
        work_ns: busy time per packet, ns.
        work_per_kb_ns: and for each 1024 bytes of it.
        fifo: run as SCHED_FIFO, with priority over a sender on the same CPU.
        one_way: take packets from the first file only.
    """

    def __init__(
        self,
        tun_fd: int,
        far_fd: int = -1,
        *,
        cpu: int = -1,
        work_ns: int = 0,
        work_per_kb_ns: int = 0,
        fifo: bool = False,
        one_way: bool = False,
    ) -> None:
        super().__init__(DEVICE)
        flags = FLAG_FIFO * fifo | FLAG_ONE_WAY * one_way
        self._start = _START.pack(tun_fd, far_fd, cpu, work_ns, work_per_kb_ns, flags)

    def _set_up(self) -> None:
        fcntl.ioctl(self._fd, KREADER_START, self._start)

    def read(self) -> Counts:
        """Return the counts so far.

        Raises:
            GuestError: the reader ended with an error.
        """
        counts, error = self._ask(KREADER_READ)
        if error:
            raise GuestError(f"the in-kernel reader ended: {os.strerror(-error)}")
        return counts

    def stop(self) -> Counts:
        """Stop the reader, which may have ended by itself, and return its final counts."""
        return self._ask(KREADER_STOP)[0]

    def _ask(self, request: int) -> tuple[Counts, int]:
        values = _COUNTS.unpack(fcntl.ioctl(self._fd, request, bytes(_COUNTS.size)))
        *numbers, error = values
        return Counts(Direction(*numbers[0:3]), Direction(*numbers[3:6]), *numbers[6:]), error
