# SPDX-License-Identifier: GPL-2.0-only
"""The cases in which instructions per packet are counted, one axis after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.guest.udp_payload import Payload

RING = 500
"""Slots; more than are sent at a time, so that it is never full."""
BATCH = 32
"""Packets sent, then read; for each queue."""
PACKETS = 2_000
SEGMENT = 1472
MANY_FLOWS = 64
"""A flow has one queue; of so many each queue gets some."""
SNDBUF = 4 << 20
"""Bytes; a socket of the system's own size holds three packets of 64 KB."""

RING_AXIS, PAYLOAD, GSO, FLOWS, QUEUES = "ring", "payload", "gso", "flows", "queues"
AXES = {
    RING_AXIS: "Ring, qdisc, and who sends",
    PAYLOAD: "Bytes of payload",
    GSO: f"Segments of {SEGMENT} bytes in a packet (UDP GSO)",
    FLOWS: "Sockets that send",
    QUEUES: f"Queues (IFF_MULTI_QUEUE, mq, {MANY_FLOWS} sockets)",
}
"""What is varied, and what the tables say of it."""


_SMALL = Payload(64, 0)


@dataclass(frozen=True)
class Case:
    """A way to send and read.

    Attributes:
        name: in the raw data.
        axes: what it is called in the table of each axis that it belongs to.
        txqueuelen: slots of each ring.
        qdisc: of the device, or of each of its queues.
        batch: packets sent, then read, by one process; 0: by two, the sender's socket blocks.
        work: turns of a loop that the reader spends on a packet; they are not counted.
        payload: of a packet.
        flows: sockets that take turns.
        queues: 0: a device of one; else one with IFF_MULTI_QUEUE.
        packets: read in a round.
    """

    name: str
    axes: Mapping[str, str]
    txqueuelen: int = RING
    qdisc: str = "fq_codel"
    batch: int = BATCH
    work: int = 0
    payload: Payload = _SMALL
    flows: int = 1
    queues: int = 0
    packets: int = PACKETS

    @property
    def is_never_full(self) -> bool:
        """Whether the ring has room for all that is sent at a time."""
        return 0 < self.batch < self.txqueuelen

    @property
    def sndbuf(self) -> int:
        """Of each socket, bytes; 0: the system's."""
        return SNDBUF if self.payload.segments > 1 else 0


def _ring(name: str, txqueuelen: int, qdisc: str, batch: int, work: int = 0) -> Case:
    return Case(name, {RING_AXIS: name}, txqueuelen, qdisc, batch, work)


_BASE = "never full, fq_codel"

CASES = (
    _ring("never full, noqueue", RING, "noqueue", BATCH),
    Case(_BASE, {RING_AXIS: _BASE, PAYLOAD: "64", FLOWS: "1"}),
    _ring("full, fq_codel", 32, "fq_codel", 64),
    _ring("sender blocks, fq_codel", 32, "fq_codel", 0, 2_000),
    *(
        Case(f"payload={size}", {PAYLOAD: str(size)}, payload=Payload(size, 0))
        for size in (512, SEGMENT)
    ),
    *(
        Case(f"gso={n}", {GSO: str(n)}, payload=Payload(SEGMENT, n), packets=packets)
        for n, packets in ((1, PACKETS), (4, 1_000), (16, 500), (44, 200))
    ),
    Case("flows=8", {FLOWS: "8"}, flows=8),
    Case(f"flows={MANY_FLOWS}", {FLOWS: str(MANY_FLOWS)}, flows=MANY_FLOWS),
    *(
        Case(f"queues={n}", {QUEUES: str(n)}, batch=BATCH * n, flows=MANY_FLOWS, queues=n)
        for n in (1, 2, 4, 8)
    ),
)
"""The base case is measured once and stands in three tables."""


def chosen(axes: Sequence[str]) -> list[Case]:
    """Return the cases of some axes, in order."""
    return [case for case in CASES if set(axes) & set(case.axes)]
