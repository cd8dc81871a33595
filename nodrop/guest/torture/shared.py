# SPDX-License-Identifier: GPL-2.0-only
"""The memory in which the processes of the torture count: a count there survives its SIGKILL."""

from __future__ import annotations

import ctypes
import mmap
from enum import IntEnum

SLOTS = 256

libc = ctypes.CDLL(None, use_errno=True)


class Field(IntEnum):
    """What stands where in a slot."""

    COUNT = 0
    """Packets sent, or read."""
    STATE = 1
    """See State."""
    REFUSED = 2
    """Sent, and dropped before the call returned."""
    UNSURE = 3
    """Calls that failed in a way that does not tell whether a packet was made."""
    ERRORS = 4
    """Calls that failed, and made no packet."""
    OTHERS = 5
    """Of those read: what no sender of ours sent."""
    LAST = 6
    """Of a sender: 1 + the number of its packet that was read last."""
    WRONG = 7
    """See Wrong; 0: none."""
    WHERE = 8
    """The number of the packet that is wrong."""
    STOP = 9
    """Written by whoever wants the job to stop."""


class State(IntEnum):
    """What a process does, by its own word."""

    BUSY = 1
    PAUSED = 2
    ENDED = 3


class Wrong(IntEnum):
    """What is wrong with a packet that was read."""

    CONTENT = 1
    ORDER = 2


_FIELDS = 16
_ORDER = 0
"""The slot with the order for all senders: 0 run, 1 pause."""


class Memory:
    """Counts of many processes, each in a slot of its own."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, SLOTS * _FIELDS * 8)
        self.words = memoryview(self._map).cast("Q")
        self._free = list(range(SLOTS - 1, _ORDER, -1))

    def take(self) -> int:
        """Return a slot with nothing in it."""
        slot = self._free.pop()
        at = slot * _FIELDS
        self.words[at : at + _FIELDS] = memoryview(bytes(_FIELDS * 8)).cast("Q")
        return slot

    def give(self, slot: int) -> None:
        """Nobody uses the slot any more."""
        self._free.append(slot)

    def get(self, slot: int, field: Field) -> int:
        """Return a field of a slot."""
        return self.words[slot * _FIELDS + field]

    def set(self, slot: int, field: Field, value: int) -> None:
        """Write a field of a slot, which only one process does."""
        self.words[slot * _FIELDS + field] = value

    def add(self, slot: int, field: Field, value: int = 1) -> None:
        """Add to a field of a slot, which only one process does."""
        self.words[slot * _FIELDS + field] += value

    @property
    def pause(self) -> bool:
        """Whether the senders are to pause."""
        return bool(self.words[_ORDER])

    @pause.setter
    def pause(self, wanted: bool) -> None:
        self.words[_ORDER] = int(wanted)
