# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows with offloads and an echo probe, into vhost-net.

::

    netns nda (CPU 0)                           CPU 1                         netns ndb (CPU 0)
    tcp_flows ---+                                                          +--> tcp_flows
                 +--> qdisc --> TAP --> [vhost] --> [client] --> TAP -------+
    echo_probe --+                                                          +--> echo thread
       <----------------------- TAP <-- [vhost] <-- [client] <-- TAP <-- qdisc <---

The client stands for a virtual machine, and the second TAP for the network inside it, as in the
scenario tcp. Packets have up to 64 kB on their whole way.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest import latency
from bench.guest.scenarios.base import Metrics, Scenario, driver_metrics
from bench.guest.vhostpair import VhostReader, no_addresses
from bench.guest.vpn import DEVICES, NETNS, set_up_ends, wait_until_idle
from guestlib.drivers import awake_cpus
from guestlib.namespaces import namespaces
from guestlib.netstats import driver_counters
from lab.variant import Variant


class VhostLatency(Scenario):
    """Latency under load, goodput and retransmits of traffic into a virtual machine."""

    parameters = latency.PARAMETERS | {
        *("client_cpu", "qdisc", "slots", "txqueuelen", "work_ns", "worker_cpu")
    }
    uses_vhost = True

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Load the TAP, probe it during the window, account for every packet."""
        with ExitStack() as stack:
            stack.enter_context(namespaces(*NETNS))
            reader = VhostReader(
                variant,
                self.environment,
                stack,
                slots=self.number("slots"),
                work_ns=self.number("work_ns"),
                cpu=self.number("client_cpu"),
                worker_cpu=self.number("worker_cpu"),
            )
            set_up_ends(txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            stack.enter_context(awake_cpus(self.environment.modules))
            measured, first, last = latency.measure(self, seconds, reader.client.counts)
            no_addresses()
            forward, reverse = wait_until_idle(reader.carried)
            driver = driver_counters(DEVICES[0], netns=NETNS[0])
            carried = reader.metrics((forward, reverse))
        window_s = (last.now_ns - first.now_ns) / 1e9
        switches = last.involuntary_switches - first.involuntary_switches
        metrics: Metrics = {
            "lost": forward.link.tx_dropped,
            "lost_back": reverse.link.tx_dropped,
            "qdisc_drops": forward.qdisc.drops + reverse.qdisc.drops,
            "requeues": forward.qdisc.requeues,
            "worker_involuntary_switches_per_s": switches / window_s,
        }
        return measured | metrics | carried | driver_metrics(driver)
