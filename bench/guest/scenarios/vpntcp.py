# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows through a real VPN over a path of any length.

::

    netns ndnear                                                      netns ndfar
    iperf3 --> qdisc --> ndtest0 --> near VPN     far VPN --> ndfar0 --> iperf3
     ACKs  <------------ ndtest0 <--  |    ^        |  ^  <-- ndfar0 <-- ACKs
                                      v    |        v  |
                                   ndveth0 <======= ndveth1
                                             netem: later by rtt_ms

Only what the far end sends is delayed: ndtest0's ring is filled by the sender and emptied by the
near VPN, and nothing else holds its packets.

The near VPN's reading is the bottleneck, as on a machine whose VPN is slower than its
applications. Both VPNs need about the same CPU time for a packet, so the far one has to have
more of it: near VPN and receiver on one CPU, far VPN and sender, which costs little, on the
other. With the receiver beside the far VPN the far one is the slowest: what is lost then are
its ACKs, and what its socket cannot hold. Tried on a busy machine, ring 500: near packets lost
with the receiver on the near CPU, only ACKs with it on the far one. A sender on the near VPN's
CPU is possible, too, but no driver has to wake anybody on another CPU then.

Sockets have buffers large enough for what the far VPN cannot take at once, so that a slow far
VPN shows as a longer RTT; drops at all other places are counted apart.

Devices have no offloads: a slot of a ring is a packet, whatever the VPN.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.guest import iperf
from bench.guest.plan import Parameters
from bench.guest.scenarios.base import DeviceCounts, Metrics, Scenario, drain, driver_metrics
from bench.guest.scenarios.vpnhost import (
    BUFFER_MAX,
    LIBRARY,
    SETTINGS,
    settings,
    udp_drops,
    vpn_programs,
)
from lab.guest.drivers import IFF_BACKPRESSURE, awake_cpus
from lab.guest.failure import GuestError
from lab.guest.netstats import driver_counters, link_counters, qdisc_counters
from lab.guest.process import in_netns, tool
from lab.guest.tundev import configure, opened_flags
from lab.guest.variant import Variant
from lab.guest.vpns import FAR, NEAR, End, Options, Vpn, tunnel
from lab.guest.vpns.tunnel import VETH

HERE = End("ndnear", NEAR.device, NEAR.outer, NEAR.inner)
THERE = FAR
PATH_LIMIT = 100_000
"""Packets that netem may hold: more than all ACKs of a second."""


class VpnTcp(Scenario):
    """Goodput and retransmits of flows through a VPN, and where packets were lost."""

    parameters = frozenset(
        {
            "far_cpu",
            "flows",
            "near_cpu",
            "qdisc",
            "receiver_cpu",
            "rtt_ms",
            "sender_cpu",
            "txqueuelen",
            "vpn",
            "warm_up_s",
        }
    )

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return the VPN's and iperf3, too."""
        return (*super().host_programs(parameters), *vpn_programs(parameters), "iperf3")

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Set the VPN up, let the flows run, read all counters."""
        options = Options(
            offloads=False,
            backpressure=self.environment.bin / LIBRARY if variant is Variant.UPSTREAM else None,
            cpus=(self.number("near_cpu"), self.number("far_cpu")),
        )
        with ExitStack() as stack:
            stack.enter_context(settings(SETTINGS))
            vpn = stack.enter_context(
                tunnel(self.text("vpn"), near=HERE, far=THERE, options=options)
            )
            before = self._set_up()
            idle_rtt_ms = self._measure_rtt()
            stack.enter_context(awake_cpus(self.environment.modules))
            cpu_s, started = self._cpu_seconds(vpn), time.monotonic()
            flows = iperf.run(
                (str(HERE.netns), str(THERE.netns)),
                THERE.inner,
                cpus=(self.text("sender_cpu"), self.text("receiver_cpu")),
                flows=self.number("flows"),
                warm_up_s=self.number("warm_up_s"),
                seconds=seconds,
            )
            took_s = time.monotonic() - started
            near_s, far_s = (
                after - earlier
                for after, earlier in zip(self._cpu_seconds(vpn), cpu_s, strict=True)
            )
            here = drain(HERE.device, netns=HERE.netns, before=before.gone)
            there = DeviceCounts.of(THERE.device, THERE.netns)
            driver = driver_counters(HERE.device, netns=HERE.netns)
            elsewhere = self._drops_elsewhere()
            self._check(vpn, variant)
        delivered = here.link.tx_packets - before.link.tx_packets
        metrics: Metrics = {
            "goodput_mbit_per_s": flows.bytes * 8 / flows.window_s / 1e6,
            "retransmits": flows.retransmits,
            "rtt_mean_ms": flows.rtt_ms,
            "rtt_idle_ms": idle_rtt_ms,
            "rtt_over_path": flows.rtt_ms / idle_rtt_ms,
            "lost": here.link.tx_dropped - before.link.tx_dropped,
            "delivered": delivered,
            "unaccounted": here.qdisc.packets - (here.gone - before.gone),
            "qdisc_drops": here.qdisc.drops,
            "requeues": here.qdisc.requeues,
            "ack_drops": there.link.tx_dropped + there.qdisc.drops,
            "near_vpn_cpu_us_per_packet": 1e6 * near_s / max(delivered, 1),
            "far_vpn_cpu_us_per_packet": 1e6 * far_s / max(delivered, 1),
            "near_vpn_cpu_percent": 100 * near_s / took_s,
            "far_vpn_cpu_percent": 100 * far_s / took_s,
            "window_s": flows.window_s,
        }
        return metrics | elsewhere | driver_metrics(driver)

    def _set_up(self) -> DeviceCounts:
        """Give queue, path and windows their sizes; returns the near device's counters then."""
        for end in (HERE, THERE):
            words = [f"net.ipv4.tcp_{way}mem=4096 262144 {BUFFER_MAX}" for way in "rw"]
            tool(in_netns(end.netns, ["sysctl", "-q", "-w", *words]))
        words = ["tc", "-n", str(THERE.netns), "qdisc", "add", "dev", VETH[1], "root", "netem"]
        tool([*words, "delay", f"{self.text('rtt_ms')}ms", "limit", str(PATH_LIMIT)])
        configure(
            HERE.device,
            txqueuelen=self.number("txqueuelen"),
            qdisc=self.text("qdisc"),
            netns=HERE.netns,
        )
        return DeviceCounts.of(HERE.device, HERE.netns)

    def _measure_rtt(self) -> float:
        """Return the shortest of some round-trip times of the idle tunnel, ms."""
        words = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-w", "5", THERE.inner]
        said = tool(in_netns(HERE.netns, words))
        try:
            return float(said.partition("min/avg/max/mdev = ")[2].split("/")[0])
        except ValueError as error:
            raise GuestError("'ping' printed something unknown") from error

    def _cpu_seconds(self, vpn: Vpn) -> tuple[float, float]:
        return vpn.near.cpu_ns / 1e9, vpn.far.cpu_ns / 1e9

    def _drops_elsewhere(self) -> Metrics:
        """Return what was dropped at the places that are not looked at."""
        ends = list(zip((HERE, THERE), VETH, strict=True))
        veths = [link_counters(device, netns=end.netns) for end, device in ends]
        return {
            "udp_drops": sum(udp_drops(end) for end, _ in ends),
            "veth_drops": sum(veth.tx_dropped + veth.rx_dropped for veth in veths),
            "netem_drops": qdisc_counters(VETH[1], netns=THERE.netns).drops,
        }

    def _check(self, vpn: Vpn, variant: Variant) -> None:
        """See to it that the VPN ran through and that its devices are what was asked for.

        Raises:
            GuestError: they are not; a device that was opened anew could have lost the flag.
        """
        if trouble := vpn.lost():
            raise GuestError(f"{vpn.name} lost its peer: {', '.join(trouble)}")
        for end in (HERE, THERE):
            asked = bool(opened_flags(end.device, netns=end.netns) & IFF_BACKPRESSURE)
            if asked is not (variant is Variant.UPSTREAM):
                word = "with" if asked else "without"
                raise GuestError(f"{vpn.name} opened {end.device} {word} upstream's flag")
