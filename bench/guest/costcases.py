# SPDX-License-Identifier: GPL-2.0-only
"""The cases in which instructions per packet are counted, by axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.guest.udp_payload import Payload

RING = 500
"""Slots; more than are sent at a time, so the ring is never full."""
BATCH = 32
"""Packets sent, then read; per queue."""
PACKETS = 2_000
SEGMENT = 1472
MANY_FLOWS = 64
"""Each flow stays on one queue; with so many, all queues are used."""
SNDBUF = 4 << 20
"""Bytes; the default send buffer holds only three packets of 64 KB."""

RING_AXIS, PAYLOAD, GSO, FLOWS, QUEUES = "ring", "payload", "gso", "flows", "queues"
AXES = {
    RING_AXIS: "Ring, qdisc, and who sends",
    PAYLOAD: "Bytes of payload",
    GSO: f"Segments of {SEGMENT} bytes in a packet (UDP GSO)",
    FLOWS: "Sockets that send",
    QUEUES: f"Queues (IFF_MULTI_QUEUE, mq, {MANY_FLOWS} sockets)",
}
"""Axis -> its heading in tables."""


_SMALL = Payload(64, 0)


@dataclass(frozen=True)
class Case:
    """One way to send and read packets.

    Attributes:
        name: in the raw data.
        axes: axis -> the case's label in that axis's table.
        txqueuelen: slots of each ring.
        qdisc: of the device, or of each of its queues.
        batch: one process sends so many packets, then reads them; 0: two processes, blocking send.
        work: iterations of a loop in which the reader spends time on a packet; not counted.
        payload: of a packet.
        flows: sockets that take turns.
        queues: of an IFF_MULTI_QUEUE device; 0: a device without that flag.
        packets: to read in a round.
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
        """Whether the ring has a slot for every packet of a batch."""
        return 0 < self.batch < self.txqueuelen

    @property
    def sndbuf(self) -> int:
        """Of each socket, bytes; 0: the default."""
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
"""The base case is measured once and appears in three tables."""


def chosen(axes: Sequence[str]) -> list[Case]:
    """Return the cases of some axes, in order."""
    return [case for case in CASES if set(axes) & set(case.axes)]
