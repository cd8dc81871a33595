# SPDX-License-Identifier: GPL-2.0-only
"""What a UDP packet through a device carries: plain, or segments that pass whole (GSO)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from lab.guest.failure import GuestError
from lab.guest.tundev import UDP_OFFLOADS

_PAYLOAD = re.compile(r"(?:(?P<segments>[1-9]\d*)x)?(?P<size>[1-9]\d*)")


@dataclass(frozen=True)
class Payload:
    """What a packet carries, which takes one slot of the ring and counts as one.

    Attributes:
        size: bytes, of each segment if there are any.
        segments: 0: a plain packet; else the device takes UDP packets of many segments whole,
            and this is one of so many.
    """

    size: int
    segments: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "1472" or "44x1472".

        Raises:
            GuestError: it is neither.
        """
        found = _PAYLOAD.fullmatch(text)
        if not found:
            raise GuestError(f"a payload is 1472 or 44x1472 bytes, not '{text}'")
        return cls(int(found["size"]), int(found["segments"] or 0))

    @property
    def bytes(self) -> int:
        """Of the whole packet."""
        return self.size * max(self.segments, 1)

    @property
    def offloads(self) -> int:
        """What the device must take."""
        return UDP_OFFLOADS if self.segments else 0

    @property
    def words(self) -> list[str]:
        """For udp_sender and packet_cost."""
        return ["--size", str(self.size), "--segments", str(max(self.segments, 1))]
