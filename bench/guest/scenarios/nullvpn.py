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
from typing import Any

from bench.guest.scenarios.base import Metrics, Scenario, drain, driver_metrics
from bench.guest.vpn import DEVICES, NETNS, kernel_vpn, netns_options
from lab.guest.drivers import awake_cpus, device_flags
from lab.guest.kreader import KernelReader, rates
from lab.guest.netstats import driver_counters
from lab.guest.process import Service, finished, parse_last_json
from lab.guest.timing import time_limit
from lab.guest.tundev import IFF_TUN
from lab.guest.variant import Variant

WARM_UP_S = 0.4
"""From the TCP flows' start to the measured window, seconds."""
PROBE_GRACE_S = 0.1
END_GRACE_S = time_limit(15.0)


class NullVpn(Scenario):
    """Latency under load, goodput and retransmits of traffic through a VPN."""

    parameters = frozenset(
        {
            "buffer_bytes",
            "cpus_sleep",
            "flows",
            "offloads",
            "probe_interval_us",
            "qdisc",
            "traffic_cpu",
            "txqueuelen",
            "vpn_cpu",
            "work_ns",
        }
    )

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
            probe, flows, rated = self._traffic(forwarder, seconds)
            counts = [
                drain(device, netns=netns, segments=self.flag("offloads"))
                for device, netns in zip(DEVICES, NETNS, strict=True)
            ]
            driver = driver_counters(DEVICES[0], netns=NETNS[0])
            forwarded = forwarder.read()
        lost = sum(count.link.tx_dropped for count in counts)
        given = sum(count.qdisc.packets for count in counts)
        metrics: Metrics = {
            "goodput_mbit_per_s": flows["bytes"] * 8 / flows["seconds"] / 1e6,
            "retransmits": flows["retransmits"],
            "latency_p50_ms": probe["distribution_ns"]["500"] / 1e6,
            "latency_p90_ms": probe["distribution_ns"]["900"] / 1e6,
            "latency_p99_ms": probe["distribution_ns"]["990"] / 1e6,
            "latency_p999_ms": probe["distribution_ns"]["999"] / 1e6,
            "probes": probe["sent"],
            "probes_lost": probe["lost"],
            "latest_probe_ms": probe["latest_send_ns"] / 1e6,
            "lost": lost,
            "delivered": forwarded.packets,
            "qdisc_drops": sum(count.qdisc.drops for count in counts),
            "requeues": sum(count.qdisc.requeues for count in counts),
            "window_s": flows["seconds"],
        }
        if not self.flag("offloads"):
            metrics["unaccounted"] = given - forwarded.packets - lost
        return metrics | rated | driver_metrics(driver)

    def _traffic(
        self, forwarder: KernelReader, seconds: float
    ) -> tuple[dict[str, Any], dict[str, Any], Metrics]:
        """Return the results of the probe and the flows, and the forwarder's rates meanwhile."""
        programs, ends = self.environment.bin, netns_options()
        send = ["taskset", "--cpu-list", self.text("traffic_cpu"), str(programs / "tcp_flows")]
        send += [*ends, "--flows", self.text("flows"), "--warm-up", str(WARM_UP_S)]
        send += ["--sndbuf", self.text("buffer_bytes"), "--rcvbuf", self.text("buffer_bytes")]
        send += ["--seconds", str(seconds)]
        # The probe has priority over the load, so it measures queues and the VPN, not the wait for
        # its turn on a busy CPU.
        probe = ["taskset", "--cpu-list", self.text("traffic_cpu"), "chrt", "--fifo", "1"]
        probe += [str(programs / "echo_probe"), *ends, "--grace", str(PROBE_GRACE_S)]
        probe += ["--interval-us", self.text("probe_interval_us")]
        # The load ends with the window, so the probe ends a little before.
        probe += ["--seconds", str(max(seconds - 2 * PROBE_GRACE_S, seconds / 2))]
        with Service(send) as service:
            first = forwarder.read()
            echoed = finished(probe, timeout=seconds + END_GRACE_S)
            rated = rates(first, forwarder.read())
            flows = parse_last_json(service.wait(seconds + END_GRACE_S), "tcp_flows")
        return echoed, flows, {**rated}
