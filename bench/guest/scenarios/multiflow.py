# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows through one TAP queue and a VPN with a single thread, in the kernel.

::

    netns nda (CPU 0)                 CPU 1                    netns ndb (CPU 0)
    tcp_flows --> qdisc --> TAP --> [forwarder] --> TAP --> tcp_flows
        <----------- ACKs <-------- [forwarder] <-- TAP <-- qdisc <--

The forwarder is the bottleneck. Work for the senders that a driver shifts to its reader's CPU
reduces the goodput.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from bench.guest.scenarios.base import Metrics, Scenario, driver_metrics
from bench.guest.vpn import DEVICES, NETNS, kernel_vpn, netns_options, wait_until_idle
from guestlib.drivers import awake_cpus, device_flags
from guestlib.kreader import Counts, KernelReader, rates
from guestlib.netstats import driver_counters
from guestlib.process import Service, parse_last_json
from guestlib.timing import time_limit
from guestlib.tundev import IFF_TAP
from lab.variant import Variant

WARM_UP_S = 0.4
"""From the first flow's start to the measured window, seconds: windows open, queues fill."""
END_GRACE_S = time_limit(10.0)
WATCHED = 0.95
"""Share of the window, from its start, over which the forwarder's counts are taken."""


class Multiflow(Scenario):
    """Goodput of several flows on one queue, and the reader's work for it."""

    parameters = frozenset(
        {
            "flows",
            "offloads",
            "txqueuelen",
            "qdisc",
            "work_ns",
            "forwarder_cpu",
            "traffic_cpu",
            "back_cpu",
            "buffer_bytes",
        }
    )

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Run the flows for the window, read all counters."""
        with ExitStack() as stack:
            forwarder = stack.enter_context(
                kernel_vpn(
                    IFF_TAP | device_flags(variant),
                    offloads=self.flag("offloads"),
                    cpu=self.number("forwarder_cpu"),
                    back_cpu=self.number("back_cpu"),
                    work_ns=self.number("work_ns"),
                    txqueuelen=self.number("txqueuelen"),
                    qdisc=self.text("qdisc"),
                )
            )
            stack.enter_context(awake_cpus(self.environment.modules))
            flows, first, last = self._load(forwarder, seconds)
            forward, reverse = wait_until_idle(lambda: forwarder.read().packets)
            driver = driver_counters(DEVICES[0], netns=NETNS[0])
            end = forwarder.read()
        metrics: Metrics = {
            "goodput_mbit_per_s": flows["bytes"] * 8 / flows["seconds"] / 1e6,
            "retransmits": flows["retransmits"],
            "lost": forward.link.tx_dropped + reverse.link.tx_dropped,
            "delivered": end.packets,
            "qdisc_drops": forward.qdisc.drops + reverse.qdisc.drops,
            "requeues": forward.qdisc.requeues + reverse.qdisc.requeues,
            "bytes_per_packet": (last.forward.bytes - first.forward.bytes)
            / max(last.forward.packets - first.forward.packets, 1),
            "window_s": flows["seconds"],
        }
        return metrics | rates(first, last) | driver_metrics(driver)

    def _load(
        self, forwarder: KernelReader, seconds: float
    ) -> tuple[dict[str, Any], Counts, Counts]:
        """Return the flows' results, and the forwarder's counts near the window's ends."""
        command = ["taskset", "--cpu-list", self.text("traffic_cpu")]
        command += [str(self.environment.bin / "tcp_flows"), *netns_options()]
        command += ["--flows", self.text("flows"), "--seconds", str(seconds)]
        command += ["--sndbuf", self.text("buffer_bytes"), "--rcvbuf", self.text("buffer_bytes")]
        command += ["--warm-up", str(WARM_UP_S)]
        with Service(command) as service:
            first = forwarder.read()
            time.sleep(WATCHED * seconds)
            last = forwarder.read()
            flows = parse_last_json(service.wait(seconds + END_GRACE_S), "tcp_flows")
        return flows, first, last
