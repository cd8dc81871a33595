# SPDX-License-Identifier: GPL-2.0-only
"""The payload of a UDP packet through a device: plain, or several segments (GSO)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from guestlib.failure import GuestError
from guestlib.tundev import UDP_OFFLOADS

_PAYLOAD = re.compile(r"(?:(?P<segments>[1-9]\d*)x)?(?P<size>[1-9]\d*)")


@dataclass(frozen=True)
class Payload:
    """A packet's payload; the packet takes one slot of the ring and counts as one.

    Attributes:
        size: bytes, of each segment if there are several.
        segments: number of segments in a packet, on a device with UDP offloads; 0: a plain packet.
    """

    size: int
    segments: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "1472" or "44x1472".

        Raises:
            GuestError: it is neither.
        """
        found = _PAYLOAD.fullmatch(text)
        if not found:
            raise GuestError(f"a payload is 1472 or 44x1472 bytes, not '{text}'")
        return cls(int(found["size"]), int(found["segments"] or 0))

    @property
    def bytes(self) -> int:
        """Bytes of the whole packet."""
        return self.size * max(self.segments, 1)

    @property
    def offloads(self) -> int:
        """The offloads that the device needs."""
        return UDP_OFFLOADS if self.segments else 0

    @property
    def words(self) -> list[str]:
        """Arguments of udp_sender and packet_cost."""
        return ["--size", str(self.size), "--segments", str(max(self.segments, 1))]
