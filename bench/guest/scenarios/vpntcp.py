# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows through a real VPN over a path of any RTT.

::

    netns ndnear                                                      netns ndfar
    iperf3 --> qdisc --> ndtest0 --> near VPN     far VPN --> ndfar0 --> iperf3
     ACKs  <------------ ndtest0 <--  |    ^        |  ^  <-- ndfar0 <-- ACKs
                                      v    |        v  |
                                   ndveth0 <======= ndveth1
                                             netem: later by rtt_ms

Only the far end's packets are delayed: the sender fills ndtest0's ring, the near VPN empties it,
and nothing else queues its packets.

The near VPN is the bottleneck, as on a machine whose VPN is slower than its applications. Both
VPNs need about the same CPU time for a packet, so the far one must get more of it: near VPN and
receiver share one CPU, far VPN and sender, which costs little, the other one. If the receiver
shared the far VPN's CPU, the far VPN would be the slowest, and the drops would be its ACKs and
packets to its socket. Tried on a busy machine with 500 slots: near drops with the receiver on the
near CPU, only ACK drops with it on the far CPU. A sender on the near VPN's CPU is possible, too,
but then no driver has to wake a task on another CPU.

Socket buffers are large enough for packets that a slow far VPN has not read yet, so it shows as a
longer RTT. Drops at all other places are counted separately.

Devices have no offloads: a slot of a ring is one packet for every VPN.
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
from guestlib.drivers import IFF_BACKPRESSURE, awake_cpus
from guestlib.failure import GuestError
from guestlib.netstats import driver_counters, link_counters, qdisc_counters
from guestlib.process import in_netns, tool
from guestlib.tundev import configure, opened_flags
from guestlib.vpns import FAR, NEAR, End, Options, Vpn, tunnel
from guestlib.vpns.tunnel import VETH
from lab.variant import Variant

NEAR_END = End("ndnear", NEAR.device, NEAR.outer, NEAR.inner)
FAR_END = FAR
PATH_LIMIT = 100_000
"""Packets that netem may queue: more than all ACKs of a second."""


class VpnTcp(Scenario):
    """Goodput and retransmits of flows through a VPN, and where packets were dropped."""

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
        """Return the VPN's programs and iperf3 as well."""
        return (*super().host_programs(parameters), *vpn_programs(parameters), "iperf3")

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Set up the VPN, run the flows, read all counters."""
        options = Options(
            offloads=False,
            backpressure=self.environment.bin / LIBRARY if variant is Variant.UPSTREAM else None,
            cpus=(self.number("near_cpu"), self.number("far_cpu")),
        )
        with ExitStack() as stack:
            stack.enter_context(settings(SETTINGS))
            vpn = stack.enter_context(
                tunnel(self.text("vpn"), near=NEAR_END, far=FAR_END, options=options)
            )
            before = self._set_up()
            idle_rtt_ms = self._measure_rtt()
            stack.enter_context(awake_cpus(self.environment.modules))
            cpu_s, started = self._cpu_seconds(vpn), time.monotonic()
            flows = iperf.run(
                (str(NEAR_END.netns), str(FAR_END.netns)),
                FAR_END.inner,
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
            near = drain(NEAR_END.device, netns=NEAR_END.netns, before=before.gone)
            far = DeviceCounts.of(FAR_END.device, FAR_END.netns)
            driver = driver_counters(NEAR_END.device, netns=NEAR_END.netns)
            elsewhere = self._drops_elsewhere()
            self._check(vpn, variant)
        delivered = near.link.tx_packets - before.link.tx_packets
        metrics: Metrics = {
            "goodput_mbit_per_s": flows.bytes * 8 / flows.window_s / 1e6,
            "retransmits": flows.retransmits,
            "rtt_mean_ms": flows.rtt_ms,
            "rtt_idle_ms": idle_rtt_ms,
            "rtt_over_path": flows.rtt_ms / idle_rtt_ms,
            "lost": near.link.tx_dropped - before.link.tx_dropped,
            "delivered": delivered,
            "unaccounted": near.qdisc.packets - (near.gone - before.gone),
            "qdisc_drops": near.qdisc.drops,
            "requeues": near.qdisc.requeues,
            "ack_drops": far.link.tx_dropped + far.qdisc.drops,
            "near_vpn_cpu_us_per_packet": 1e6 * near_s / max(delivered, 1),
            "far_vpn_cpu_us_per_packet": 1e6 * far_s / max(delivered, 1),
            "near_vpn_cpu_percent": 100 * near_s / took_s,
            "far_vpn_cpu_percent": 100 * far_s / took_s,
            "window_s": flows.window_s,
        }
        return metrics | elsewhere | driver_metrics(driver)

    def _set_up(self) -> DeviceCounts:
        """Set ring, path and TCP windows; return the near device's counters at that time."""
        for end in (NEAR_END, FAR_END):
            words = [f"net.ipv4.tcp_{way}mem=4096 262144 {BUFFER_MAX}" for way in "rw"]
            tool(in_netns(end.netns, ["sysctl", "-q", "-w", *words]))
        words = ["tc", "-n", str(FAR_END.netns), "qdisc", "add", "dev", VETH[1], "root", "netem"]
        tool([*words, "delay", f"{self.text('rtt_ms')}ms", "limit", str(PATH_LIMIT)])
        configure(
            NEAR_END.device,
            txqueuelen=self.number("txqueuelen"),
            qdisc=self.text("qdisc"),
            netns=NEAR_END.netns,
        )
        return DeviceCounts.of(NEAR_END.device, NEAR_END.netns)

    def _measure_rtt(self) -> float:
        """Return the shortest of three round-trip times of the idle tunnel, ms."""
        words = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-w", "5", FAR_END.inner]
        output = tool(in_netns(NEAR_END.netns, words))
        try:
            return float(output.partition("min/avg/max/mdev = ")[2].split("/")[0])
        except ValueError as error:
            raise GuestError("cannot parse the output of 'ping'") from error

    def _cpu_seconds(self, vpn: Vpn) -> tuple[float, float]:
        return vpn.near.cpu_ns / 1e9, vpn.far.cpu_ns / 1e9

    def _drops_elsewhere(self) -> Metrics:
        """Return the drops at places that are not measured."""
        ends = list(zip((NEAR_END, FAR_END), VETH, strict=True))
        veths = [link_counters(device, netns=end.netns) for end, device in ends]
        return {
            "udp_drops": sum(udp_drops(end) for end, _ in ends),
            "veth_drops": sum(veth.tx_dropped + veth.rx_dropped for veth in veths),
            "netem_drops": qdisc_counters(VETH[1], netns=FAR_END.netns).drops,
        }

    def _check(self, vpn: Vpn, variant: Variant) -> None:
        """Check that the VPN ran without interruption and that its devices have the right flags.

        Raises:
            GuestError: they do not; a device that was reopened could have lost the flag.
        """
        if trouble := vpn.lost():
            raise GuestError(f"{vpn.name} lost its peer: {', '.join(trouble)}")
        for end in (NEAR_END, FAR_END):
            has_flag = bool(opened_flags(end.device, netns=end.netns) & IFF_BACKPRESSURE)
            if has_flag is not (variant is Variant.UPSTREAM):
                word = "with" if has_flag else "without"
                raise GuestError(f"{vpn.name} opened {end.device} {word} upstream's flag")
