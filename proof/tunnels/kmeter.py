# SPDX-License-Identifier: GPL-2.0-only
"""Measure two variants of a transmit path in one kernel (guestlib/traffic/kreader/kmeter.h)."""

from __future__ import annotations

import ctypes
import fcntl
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from guestlib import chardev

DEVICE = "/dev/nodrop-kmeter"
PATTERN = (0, 1, 1, 0)
"""The variant of each slot, repeated: drift affects both variants alike."""
_RUN = struct.Struct("=64s10I2Q")
_SAMPLE = struct.Struct("=4IQ")
_ROOM_AT = 64 + 8 * 4
IOC_RUN = chardev.ioc(chardev.IOC_READ | chardev.IOC_WRITE, 0xE0, _RUN.size)


@dataclass(frozen=True)
class Sample:
    """One sender's work in one slot, ``struct kmeter_sample``.

    Attributes:
        refused: packets that the device or its qdisc refused.
        cycles: of the CPU's cycle counter, for all packets.
    """

    slot: int
    cpu: int
    packets: int
    refused: int
    cycles: int

    @property
    def cost(self) -> float:
        """Cycles per packet."""
        return self.cycles / self.packets


@dataclass(frozen=True)
class Frame:
    """The packet to send.

    Attributes:
        data: from its link header on, or from its network header if the device has no link header.
        protocol: the payload's ethertype.
        network: offset of the network header.
    """

    data: bytes
    protocol: int
    network: int


class Meter(chardev.DeviceFile):
    """The device file; a context manager."""

    def __init__(self) -> None:
        super().__init__(DEVICE)

    def run(
        self,
        ifindex: int,
        frame: Frame,
        *,
        symbol: str,
        cpus: Iterable[int],
        slots: int,
        slot_us: int = 1600,
        batch: int = 64,
    ) -> list[Sample]:
        """Send as fast as possible; switch the variant from slot to slot.

        Args:
            ifindex: of the device, in this network namespace.
            symbol: the kernel's int that selects the variant; "": both variants are the same.
            cpus: those with a sender.
            slots: how many, each ``slot_us`` long.
            batch: packets between two reads of the clock.

        Raises:
            OSError: ENOENT: there is no such symbol; ENODEV: no such device or CPU.
        """
        mask = sum(1 << cpu for cpu in cpus)
        room = slots * mask.bit_count()
        samples = ctypes.create_string_buffer(room * _SAMPLE.size)
        data = ctypes.create_string_buffer(frame.data, len(frame.data))
        given = (mask, batch, slot_us, slots, len(frame.data), frame.protocol, frame.network)
        run = bytearray(
            _RUN.pack(
                symbol.encode(),
                ifindex,
                *given,
                room,
                0,
                ctypes.addressof(data),
                ctypes.addressof(samples),
            )
        )
        fcntl.ioctl(self._fd, IOC_RUN, run)
        written = struct.unpack_from("=I", run, _ROOM_AT)[0]
        found = memoryview(samples)[: written * _SAMPLE.size]
        return [Sample(*fields) for fields in _SAMPLE.iter_unpack(found)]


def pairs(samples: Iterable[Sample]) -> Iterator[tuple[float, float]]:
    """Yield both variants' costs, for each complete group of four slots of a sender."""
    groups: dict[tuple[int, int], dict[int, Sample]] = {}
    for sample in samples:
        group, place = divmod(sample.slot, len(PATTERN))
        groups.setdefault((sample.cpu, group), {})[place] = sample
    for group_samples in groups.values():
        if len(group_samples) == len(PATTERN):
            sums = [0.0, 0.0]
            for place, variant in enumerate(PATTERN):
                sums[variant] += group_samples[place].cost
            yield sums[0] / 2, sums[1] / 2
