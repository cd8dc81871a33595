# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows and an echo probe through a VPN that does no cryptography.

::

    netns nda                                                  netns ndb
    tcp_flows ---+                                         +--> tcp_flows
                 +--> qdisc --> TUN --> [forwarder] --> TUN +
    echo_probe --+                                         +--> echo thread
       <-------------- TUN <-- [forwarder] <-- TUN <-- qdisc <-------

The forwarder is a kernel thread: a system call costs 10 us in a virtual machine, so a program would
hide the driver's cost.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest import latency
from bench.guest.scenarios.base import Metrics, Scenario, drain, driver_metrics
from bench.guest.vpn import DEVICES, NETNS, kernel_vpn
from guestlib.drivers import awake_cpus, device_flags
from guestlib.kreader import rates
from guestlib.netstats import driver_counters
from guestlib.tundev import IFF_TUN
from lab.variant import Variant


class NullVpn(Scenario):
    """Latency under load, goodput and retransmits of traffic through a VPN."""

    parameters = latency.PARAMETERS | {
        *("cpus_sleep", "offloads", "qdisc", "txqueuelen", "vpn_cpu", "work_ns")
    }

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Load the VPN, probe it during the window, read all counters."""
        with ExitStack() as stack:
            forwarder = stack.enter_context(
                kernel_vpn(
                    IFF_TUN | device_flags(variant),
                    offloads=self.flag("offloads"),
                    cpu=self.number("vpn_cpu"),
                    back_cpu=-1,
                    work_ns=self.number("work_ns"),
                    txqueuelen=self.number("txqueuelen"),
                    qdisc=self.text("qdisc"),
                )
            )
            if not self.flag("cpus_sleep"):
                stack.enter_context(awake_cpus(self.environment.modules))
            measured, first, last = latency.measure(self, seconds, forwarder.read)
            counts = [
                drain(device, netns=netns, segments=self.flag("offloads"))
                for device, netns in zip(DEVICES, NETNS, strict=True)
            ]
            driver = driver_counters(DEVICES[0], netns=NETNS[0])
            forwarded = forwarder.read()
        lost = sum(count.link.tx_dropped for count in counts)
        given = sum(count.qdisc.packets for count in counts)
        metrics: Metrics = {
            "lost": lost,
            "delivered": forwarded.packets,
            "qdisc_drops": sum(count.qdisc.drops for count in counts),
            "requeues": sum(count.qdisc.requeues for count in counts),
        }
        if not self.flag("offloads"):
            metrics["unaccounted"] = given - forwarded.packets - lost
        return measured | metrics | rates(first, last) | driver_metrics(driver)
