# SPDX-License-Identifier: GPL-2.0-only
"""``python3 -m bench.guest.instructions TIMES AXES DRIVER...``: cost of a packet on one CPU.

::

    packet_cost --> UDP sockets --> qdisc --> TUN ring (txqueuelen) --> packet_cost
                         (1-64)       (mq)      (1-8)

Ticks are instructions only with the accelerator :data:`lab.accel.TCG_ICOUNT`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.guest.costcases import Case, chosen
from bench.guest.plan import RAW_NAME
from bench.guest.runner import append_result
from bench.guest.scenarios.base import account, drain
from guestlib.drivers import Drivers, device_flags
from guestlib.environment import Environment
from guestlib.failure import GuestError, Unsupported
from guestlib.prepare import prepare_system
from guestlib.process import tool
from guestlib.timing import time_limit
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TUN, TunDevice, configure
from lab.variant import Variant

DEVICE = "ndtun0"
LOCAL, REMOTE = "198.18.0.1", "198.18.0.2"
DEFAULT_QDISC = Path("/proc/sys/net/core/default_qdisc")
"""The qdiscs below mq."""
ROUNDS = 5
TIMEOUT_S = 60.0


def measure(case: Case, variant: Variant, environment: Environment) -> dict[str, Any]:
    """Make one measurement with the variant's driver, which must be loaded.

    Returns:
        A loop of known length, the rounds, and an account of all packets.

    Raises:
        GuestError: it failed; Unsupported: this kernel lacks a feature.
    """
    flags = IFF_TUN | device_flags(variant) | (IFF_MULTI_QUEUE if case.queues else 0)
    with ExitStack() as stack:
        devices = [
            stack.enter_context(TunDevice(DEVICE, flags, offloads=case.payload.offloads)).fd
            for _ in range(max(case.queues, 1))
        ]
        if case.queues:
            DEFAULT_QDISC.write_text(f"{case.qdisc}\n")
        configure(
            DEVICE,
            txqueuelen=case.txqueuelen,
            qdisc="mq" if case.queues else case.qdisc,
            address=f"{LOCAL} peer {REMOTE}/32",
        )
        command = [str(environment.bin / "packet_cost"), *words(case, devices)]
        output = tool(command, timeout=time_limit(TIMEOUT_S), pass_fds=devices)
        loop, *rounds, whole = map(json.loads, output.splitlines())
        counts = drain(DEVICE, whole["sent"])
    packets = account(whole["sent"], whole["delivered"], counts)
    return {
        **loop,
        "rounds": rounds,
        "sent": packets.offered,
        "delivered": packets.delivered,
        "lost": packets.lost,
        "qdisc_drops": packets.qdisc_drops,
        "unaccounted": packets.unaccounted,
        "used_queues": whole["used_queues"],
    }


def words(case: Case, devices: Sequence[int]) -> list[str]:
    """Return packet_cost's arguments, with the file descriptors of the device's queues."""
    values = {
        "device": ",".join(map(str, devices)),
        "local": LOCAL,
        "remote": REMOTE,
        "flows": case.flows,
        "sndbuf": case.sndbuf,
        "packets": case.packets,
        "rounds": ROUNDS,
        "batch": case.batch,
        "work": case.work,
    }
    named = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return named + case.payload.words


def result(case: Case, variant: Variant, environment: Environment) -> dict[str, Any]:
    """Return a line of raw data: a measurement, or the reason why this kernel cannot make it."""
    line = {"case": case.name, "axes": dict(case.axes), "variant": str(variant)}
    try:
        return line | measure(case, variant, environment)
    except Unsupported as error:
        return line | {"skipped": str(error)}


def main(argv: list[str]) -> int:
    """Measure all cases of AXES (a,b,...) with all drivers, TIMES times."""
    times, axes, *variants = argv
    try:
        environment = Environment.from_environ()
        drivers = Drivers(environment.modules)
        prepare_system()
        for _ in range(int(times)):
            for variant in map(Variant, variants):
                drivers.use(variant)
                for case in chosen(axes.split(",")):
                    line = result(case, variant, environment)
                    append_result(environment.out / RAW_NAME, line)
                print(variant, flush=True)
        drivers.unload()
    except GuestError as error:
        print(f"nodrop: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
