# SPDX-License-Identifier: GPL-2.0-only
"""Conservation of packets: what was offered is delivered, queued, lost or dropped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """Where the packets of one run went.

    Attributes:
        offered: given to the device's qdisc by the senders.
        delivered: read from the device.
        queued: left in the qdisc and in the ring at the end.
        lost: dropped by the driver although a qdisc could have held them.
        qdisc_drops: dropped by the qdisc itself, at its limit or by its AQM.
        unqueued: dropped by the driver where no qdisc could have held them (noqueue).
    """

    offered: int
    delivered: int
    queued: int
    lost: int
    qdisc_drops: int
    unqueued: int = 0

    @property
    def unaccounted(self) -> int:
        """Packets that nobody counted; negative when some were counted twice."""
        found = self.delivered + self.queued + self.lost + self.qdisc_drops + self.unqueued
        return self.offered - found
