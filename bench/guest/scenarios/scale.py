# SPDX-License-Identifier: GPL-2.0-only
"""UDP flows of any packet size through a multi-queue TUN.

::

    flow 1 --+             +--> fq_codel --> queue 1 --> reader (a kernel thread)
    flow 2 --+--> by hash -+        (mq)
    flow N --+             +--> fq_codel --> queue M --> reader (a kernel thread)

The scheduler places senders and readers. A sender's system call and a reader's ``work_ns`` hide the
driver's cost of a packet, which bench.guest.instructions counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.guest.scenarios import base
from bench.guest.udp_payload import Payload
from guestlib.drivers import awake_cpus, device_flags
from guestlib.kreader import Counts, KernelReader
from guestlib.netstats import driver_counters
from guestlib.process import Service, tool
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TUN, TunDevice, configure
from lab.variant import Variant

DEVICE = "ndtun0"
ADDRESS = "198.18.0.1 peer 198.18.0.2/32"
DESTINATION = "198.18.0.2"
SETTLE_S = 0.03
"""From the senders' start to the measured window, seconds."""
END_GRACE_S = 10.0
"""Senders are stopped after the window; without that they would send for so long, seconds."""


def delivered_pps(first: Sequence[Counts], last: Sequence[Counts]) -> float:
    """Return the rate of all readers together in the window, packets/s."""
    return sum(
        (end.packets - begin.packets) * 1e9 / (end.now_ns - begin.now_ns)
        for begin, end in zip(first, last, strict=True)
    )


class Scale(base.Scenario):
    """Delivered and dropped packets by queues, flows and packet size."""

    parameters = frozenset({"flows", "mtu", "payload", "qdisc", "queues", "txqueuelen", "work_ns"})

    def run(self, variant: Variant, seconds: float) -> base.Metrics:
        """Send for the window, drain the queues, account for every packet."""
        payload = Payload.parse(self.text("payload"))
        flags = IFF_TUN | device_flags(variant)
        queues = self.number("queues")
        if queues > 1:
            flags |= IFF_MULTI_QUEUE
        with ExitStack() as stack:
            tuns = [
                stack.enter_context(TunDevice(DEVICE, flags, offloads=payload.offloads))
                for _ in range(queues)
            ]
            readers = [
                stack.enter_context(KernelReader(tun.fd, work_ns=self.number("work_ns")))
                for tun in tuns
            ]
            stack.enter_context(awake_cpus(self.environment.modules))
            tool(["ip", "link", "set", "dev", DEVICE, "mtu", self.text("mtu")])
            configure(
                DEVICE,
                txqueuelen=self.number("txqueuelen"),
                qdisc=self.text("qdisc") if queues == 1 else "mq",
                address=ADDRESS,
            )
            with Service(self._sender(payload, seconds)) as sender:
                time.sleep(SETTLE_S)
                first = [reader.read() for reader in readers]
                time.sleep(seconds)
                last = [reader.read() for reader in readers]
                sent = sender.result()
            counts = base.drain(DEVICE, sent["sent"])
            driver = driver_counters(DEVICE)
            read = [reader.read().packets for reader in readers]
        totals = base.account(sent["sent"], sum(read), counts)
        pps = delivered_pps(first, last)
        metrics: base.Metrics = {
            "delivered_pps": pps,
            "sender_cpu_us_per_packet": sent["cpu_seconds"] * 1e6 / max(totals.delivered, 1),
            "busiest_queue_share": max(read) / max(totals.delivered, 1),
            "refused": sent["errors"],
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
        }
        return metrics | base.account_metrics(totals) | base.driver_metrics(driver)

    def _sender(self, payload: Payload, seconds: float) -> list[str]:
        command = [str(self.environment.bin / "udp_sender"), "--dest", DESTINATION, "--announce"]
        command += ["--senders", self.text("flows"), "--seconds", str(seconds + END_GRACE_S)]
        return command + payload.words
