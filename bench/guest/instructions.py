# SPDX-License-Identifier: GPL-2.0-only
"""Instructions that a packet through a TUN costs on one CPU.

::

    packet_cost --> UDP sockets --> qdisc --> TUN ring (txqueuelen) --> packet_cost
                       (flows)       (mq)      (queues)

Ticks are instructions only with the accelerator :data:`lab.qemu.TCG_ICOUNT`.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.guest.base import Kind, Metrics, account, drain
from bench.guest.udp import ADDRESS, LOCAL, REMOTE, Payload
from guestlib.drivers import device_flags
from guestlib.environment import GuestError, time_limit
from guestlib.process import tool
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TUN, TunDevice
from lab.variant import Variant

DEVICE = "ndtun0"
DEFAULT_QDISC = Path("/proc/sys/net/core/default_qdisc")
"""The qdiscs below mq."""
WARM_UP, ROUNDS = 5, 5
"""Rounds; in the first ones, which do not count, the driver measures its readers."""
PACKETS, SEGMENTS = 2_000, 8_000
"""To read in a round: so many packets, but at most so many segments."""
SNDBUF = 4 << 20
"""Bytes; the default send buffer holds only three packets of 64 KB."""
TIMEOUT_S = time_limit(60.0)
LOOP_EXCESS = 0.02
"""Share that the guest's clock and other programs may add to a loop of known length."""


class Instructions(Kind):
    """Instructions per packet read.

    With a ``batch``, one process sends so many packets for each queue, then reads them. With
    ``batch`` 0, a process sends, which blocks, and another reads; it spends ``work`` iterations of
    a loop on each packet, which do not count. ``queues`` 0 is a device without IFF_MULTI_QUEUE.
    """

    parameters = "batch flows payload qdisc queues txqueuelen work"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        del seconds
        payload = Payload.parse(self.case.payload)
        queues = self.case.queues
        flags = IFF_TUN | device_flags(variant) | (IFF_MULTI_QUEUE if queues else 0)
        devices = [
            stack.enter_context(TunDevice(DEVICE, flags, offloads=payload.offloads)).fd
            for _ in range(max(queues, 1))
        ]
        if queues:
            DEFAULT_QDISC.write_text(f"{self.case.qdisc}\n")
        self.configure(DEVICE, qdisc="mq" if queues else "", address=ADDRESS)
        batch = self.case.batch * max(queues, 1)
        command = self.command(
            "packet_cost",
            device=",".join(map(str, devices)),
            local=LOCAL,
            remote=REMOTE,
            flows=self.case.flows,
            sndbuf=SNDBUF if payload.segments > 1 else 0,
            packets=min(PACKETS, SEGMENTS // max(payload.segments, 1)),
            rounds=WARM_UP + ROUNDS,
            batch=batch,
            work=0 if batch else self.case.work,
            size=payload.size,
            segments=max(payload.segments, 1),
        )
        output = tool(command, timeout=TIMEOUT_S, pass_fds=devices)
        loop, *rounds, total = map(json.loads, output.splitlines())
        counts = drain(DEVICE, total["sent"])
        metrics = cost(loop, rounds[WARM_UP:]) | account(total["sent"], total["delivered"], counts)
        return metrics | {"used_queues": total["used_queues"]}


def cost(loop: dict[str, Any], rounds: list[dict[str, Any]]) -> Metrics:
    """Return instructions per packet, and by how much the rounds and the loop deviate.

    Raises:
        GuestError: ticks were not instructions.
    """
    excess = loop["loop_ticks"] / loop["loop_instructions"] - 1
    if not 0 <= excess <= LOOP_EXCESS:
        raise GuestError(
            f"{loop['loop_instructions']:,} instructions took {loop['loop_ticks']:,} ticks"
        )
    if any(made["idle_ms"] for made in rounds):
        raise GuestError("the CPU was idle, which counts as instructions")
    costs = [made["ticks"] / made["delivered"] for made in rounds]
    return of_rounds(costs) | {"loop_excess_percent": 100 * excess}


def of_rounds(costs: list[float]) -> Metrics:
    """Return a run's instructions per packet, from those of its rounds."""
    each = {f"round_{number}_per_packet": value for number, value in enumerate(costs, start=1)}
    return each | {
        "instructions_per_packet": median(costs),
        "spread_percent": 100 * (max(costs) - min(costs)) / median(costs),
    }
