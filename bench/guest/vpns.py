# SPDX-License-Identifier: GPL-2.0-only
"""Traffic through real VPNs (guestlib.vpns)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from bench.guest.base import (
    END_GRACE_S,
    DeviceCounts,
    Kind,
    Metrics,
    account,
    drain,
    driver_metrics,
)
from guestlib.drivers import FLAGGED, IFF_BACKPRESSURE
from guestlib.environment import GuestError, set_sysctls, setting
from guestlib.namespaces import inside
from guestlib.netstats import link_counters, parse_snmp, qdisc_counters
from guestlib.process import finished, in_netns, ip_batch, netns_path, tool
from guestlib.tundev import opened_flags
from guestlib.vpns import FAR, KINDS, NEAR, VETH, End, Options, Vpn, tunnel
from lab.variant import Variant
from nodrop.host.sockets import waiting

LIBRARY = "backpressure.so"
"""In LAB_BIN: adds upstream's flag when a VPN opens its device (LD_PRELOAD)."""
BUFFER_MAX = 64 << 20
"""Bytes; neither a TCP window nor a VPN's socket reaches its limit."""
SETTINGS = {
    Path("/proc/sys/net/core/rmem_max"): str(BUFFER_MAX),
    Path("/proc/sys/net/core/wmem_max"): str(BUFFER_MAX),
    # For VPNs that do not set SO_RCVBUF.
    Path("/proc/sys/net/core/rmem_default"): str(BUFFER_MAX),
    # HyStart mistakes a pause of a virtual CPU for a queue, and ends slow start far too early.
    Path("/sys/module/tcp_cubic/parameters/hystart"): "0",
}
"""Set during a run."""
NEAR_END = End("ndnear", NEAR.device, NEAR.outer, NEAR.inner)
"""Of VpnTcp, whose near end has a namespace, too."""
NAMESPACES = (str(NEAR_END.netns), str(FAR.netns))
"""Of its flows and probes."""
IDLE_S = 2.0
"""For which the idle tunnel is probed, seconds."""
GRACE_S = 2.0
"""Within which the last probe returns even from a slow VPN, seconds."""
PATH_LIMIT = 100_000
"""Packets that netem may queue: more than all ACKs of a second."""
CLIPS = Path(__file__).resolve().parents[1] / "clips"
VIDEO_CPUS = (1, 0)
"""Of the near and the far VPN; the stream's program runs on the far VPN's CPU."""


def udp_drops(end: End) -> int:
    """Return the drops of an end's UDP sockets, for lack of buffer space or otherwise, packets."""
    counters = parse_snmp(tool(in_netns(end.netns, ["cat", "/proc/net/snmp"])), "Udp")
    return counters["InErrors"] + counters["SndbufErrors"]


class VpnKind(Kind):
    offloads: ClassVar[bool] = False
    """Whether packets may reach the VPN unsegmented."""

    def start_vpn(
        self, variant: Variant, stack: ExitStack, near: End, cpus: tuple[int, int]
    ) -> Vpn:
        """Start the VPN between an end and FAR, on these CPUs, and set up the near device."""
        library = self.environment.bin / LIBRARY
        options = Options(
            offloads=self.offloads,
            backpressure=library if variant in FLAGGED else None,
            cpus=cpus,
        )
        for path, value in SETTINGS.items():
            stack.enter_context(setting(path, value))
        name = self.choice("vpn", *KINDS)
        return stack.enter_context(tunnel(name, near=near, far=FAR, options=options))

    def configure_end(self, near: End) -> DeviceCounts:
        """Set the near device's ring and qdisc; return its counters at that time."""
        self.configure(near.device, netns=near.netns)
        return DeviceCounts.of(near.device, near.netns)

    @staticmethod
    def check_peer(vpn: Vpn) -> None:
        """Check that the VPN ran without interruption.

        Raises:
            GuestError: it did not.
        """
        if trouble := vpn.lost():
            raise GuestError(f"{vpn.name} lost its peer: {', '.join(trouble)}")


class VpnTcp(VpnKind):
    """Goodput and retransmits of TCP flows over a path of any RTT, and where packets were dropped.

    ::

        netns ndnear                                                      netns ndfar
        flows  --> qdisc --> ndtest0 --> near VPN     far VPN --> ndfar0 --> flows
         ACKs  <------------ ndtest0 <--  |    ^        |  ^  <-- ndfar0 <-- ACKs
                                          v    |        v  |
                                       ndveth0 <======= ndveth1
                                                 netem: later by rtt_ms

    Only the far end's packets are delayed: the sender fills ndtest0's ring, the near VPN empties
    it, and nothing else queues its packets.

    The near VPN is the bottleneck, as on a machine whose VPN is slower than its applications. Both
    VPNs need about the same CPU time for a packet, so the far one must get more of it: near VPN and
    receiver share one CPU, far VPN and sender, which costs little, the other one. If the receiver
    shared the far VPN's CPU, the far VPN would be the slowest, and the drops would be its ACKs and
    packets to its socket. Tried on a busy machine with 500 slots: near drops with the receiver on
    the near CPU, only ACK drops with it on the far CPU. A sender on the near VPN's CPU is possible,
    too, but then no driver has to wake a task on another CPU.

    Socket buffers are large enough for packets that a slow far VPN has not read yet, so it shows as
    a longer RTT. Drops at all other places are counted separately.

    Devices have no offloads: a slot of a ring is one packet for every VPN.
    """

    parameters = (
        "far_cpu flows near_cpu qdisc receiver_cpu rtt_ms sender_cpu txqueuelen vpn warm_up_s"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        cpus = (self.case.near_cpu, self.case.far_cpu)
        vpn = self.start_vpn(variant, stack, NEAR_END, cpus)
        self._set_up_path()
        before = self.configure_end(NEAR_END)
        idle = self.measure_idle(vpn)
        self.keep_cpus_awake(stack)
        near_cpu_ns, far_cpu_ns = vpn.near.cpu_ns, vpn.far.cpu_ns
        started = time.monotonic()
        sending = self.tcp_flows(
            NAMESPACES,
            vpn.ends[1].inner,
            sender_cpu=self.case.sender_cpu,
            receiver_cpu=self.case.receiver_cpu,
            flows=self.case.flows,
            warm_up_s=self.case.warm_up_s,
            seconds=seconds,
        )
        with sending:
            loaded = self.measure_beside(vpn, seconds)
            flows = self.flow_metrics(sending, seconds)
        took_s = time.monotonic() - started
        near_s = (vpn.near.cpu_ns - near_cpu_ns) / 1e9
        far_s = (vpn.far.cpu_ns - far_cpu_ns) / 1e9
        near = drain(
            NEAR_END.device, netns=NEAR_END.netns, before=before.gone, segments=self.offloads
        )
        far = DeviceCounts.of(FAR.device, FAR.netns)
        elsewhere = self._drops_elsewhere()
        self.check_peer(vpn)
        self._check_flags(vpn, variant)
        delivered = near.link.tx_packets - before.link.tx_packets
        metrics: Metrics = flows | idle | loaded
        metrics |= {
            "lost": near.link.tx_dropped - before.link.tx_dropped,
            "delivered": delivered,
            "qdisc_drops": near.qdisc.drops - before.qdisc.drops,
            "requeues": near.qdisc.requeues - before.qdisc.requeues,
            "ack_drops": far.link.tx_dropped + far.qdisc.drops,
            "near_vpn_cpu_us_per_packet": 1e6 * near_s / max(delivered, 1),
            "far_vpn_cpu_us_per_packet": 1e6 * far_s / max(delivered, 1),
            "near_vpn_cpu_percent": 100 * near_s / took_s,
            "far_vpn_cpu_percent": 100 * far_s / took_s,
        }
        if not self.offloads:
            metrics["unaccounted"] = near.qdisc.packets - (near.gone - before.gone)
            metrics["rtt_over_path"] = flows["rtt_mean_ms"] / idle["rtt_idle_ms"]
        return metrics | elsewhere | driver_metrics(NEAR_END.device, NEAR_END.netns)

    def measure_idle(self, vpn: Vpn) -> Metrics:
        """Measure the tunnel before the flows start."""
        del vpn
        return {"rtt_idle_ms": self._measure_rtt()}

    def measure_beside(self, vpn: Vpn, seconds: float) -> Metrics:
        """Measure what the flows do to others, in their window."""
        del vpn, seconds
        return {}

    def _set_up_path(self) -> None:
        for end in (NEAR_END, FAR):
            with inside(end.netns):
                buffers = f"4096 262144 {BUFFER_MAX}"
                set_sysctls({"net/ipv4/tcp_rmem": buffers, "net/ipv4/tcp_wmem": buffers})
        command = ["tc", "-n", str(FAR.netns), "qdisc", "add", "dev", VETH[1], "root", "netem"]
        tool([*command, "delay", f"{self.case.rtt_ms}ms", "limit", str(PATH_LIMIT)])

    def _measure_rtt(self) -> float:
        """Return the shortest of three round-trip times of the idle tunnel, ms."""
        command = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-w", "5", FAR.inner]
        output = tool(in_netns(NEAR_END.netns, command))
        try:
            return float(output.partition("min/avg/max/mdev = ")[2].split("/")[0])
        except ValueError as error:
            raise GuestError("cannot parse the output of 'ping'") from error

    def _drops_elsewhere(self) -> Metrics:
        """Return the drops at places that are not measured."""
        ends = (NEAR_END, FAR)
        veths = [
            link_counters(device, netns=end.netns) for end, device in zip(ends, VETH, strict=True)
        ]
        return {
            "udp_drops": sum(map(udp_drops, ends)),
            "veth_drops": sum(veth.tx_dropped + veth.rx_dropped for veth in veths),
            "netem_drops": qdisc_counters(VETH[1], netns=FAR.netns).drops,
        }

    def _check_flags(self, vpn: Vpn, variant: Variant) -> None:
        """Check the devices' flags: a device that was reopened could have lost upstream's.

        Raises:
            GuestError: they are wrong.
        """
        for end in (NEAR_END, FAR):
            has_flag = bool(opened_flags(end.device, netns=end.netns) & IFF_BACKPRESSURE)
            if has_flag is not (variant in FLAGGED):
                word = "with" if has_flag else "without"
                raise GuestError(f"{vpn.name} opened {end.device} {word} upstream's flag")


class VpnLoad(VpnTcp):
    """The same for devices with the VPN's own offloads and qdisc, and the delay of a probe.

    The probe is sent before the flows and beside them, in their namespaces; its time contains the
    path's. The scenario gives the far VPN a CPU of its own: with offloads its end is the costlier
    one. If it is the slower one nevertheless, packets wait in its sockets (``far_socket_kbytes``,
    unread in the middle of the window), or are dropped there (``udp_drops``).
    ``near_socket_kbytes`` is what is in the near one's then: unsent by UDP, or sent by TCP and not
    acknowledged. UDP's is memory, more than the packets' bytes. With ``cake`` the qdisc is cake
    with these options; "": the default qdisc.
    """

    parameters = (
        "cake far_cpu flows near_cpu probe_interval_us receiver_cpu rtt_ms sender_cpu "
        "txqueuelen vpn warm_up_s"
    )
    offloads = True

    def configure_end(self, near: End) -> DeviceCounts:
        lines = [f"link set dev {near.device} txqueuelen {self.case.txqueuelen}"]
        ip_batch(lines, netns=near.netns)
        if self.case.cake:
            command = f"tc qdisc replace dev {near.device} root cake {self.case.cake}"
            tool(in_netns(near.netns, command.split()))
        return DeviceCounts.of(near.device, near.netns)

    def measure_idle(self, vpn: Vpn) -> Metrics:
        return self._probe(vpn, IDLE_S, "idle")

    def measure_beside(self, vpn: Vpn, seconds: float) -> Metrics:
        with ThreadPoolExecutor(1) as pool:
            queued = pool.submit(self._queued_later, vpn, seconds / 2)
            found = self._probe(vpn, self.probe_seconds(seconds), "latency")
            return found | queued.result()

    @staticmethod
    def _queued_later(vpn: Vpn, seconds: float) -> Metrics:
        time.sleep(seconds)
        near, far = (waiting(process.pid) for process in (vpn.near, vpn.far))
        if not (near and far):
            raise GuestError(f"{vpn.name}'s sockets cannot be asked")
        return {
            "near_socket_kbytes": (near.unsent + near.unacknowledged) / 1e3,
            "far_socket_kbytes": far.unread / 1e3,
        }

    def _probe(self, vpn: Vpn, seconds: float, name: str) -> Metrics:
        echoed = self.echo_probe(
            NAMESPACES,
            vpn.ends[1].inner,
            seconds,
            cpu=self.case.sender_cpu,
            grace_s=GRACE_S,
        )
        if not echoed["received"]:
            raise GuestError(f"{vpn.name}: none of {echoed['sent']} probes returned")
        percentiles = echoed["distribution_ns"]
        return {
            f"{name}_p50_ms": percentiles["500"] / 1e6,
            f"{name}_p99_ms": percentiles["990"] / 1e6,
            f"{name}_probes_lost": echoed["lost"],
        }


class VpnVideo(VpnKind):
    """Dropped packets, damaged frames, and the delay of received packets of a live video stream.

    ::

        (CPU 0)                  (CPU 1)       (CPU 0)
        video --> qdisc --> TUN --> VPN ==> veth ==> VPN --> TUN --> video
                                      netns ndfar: ...................

    All packets of a frame leave at once, as with GStreamer and ffmpeg: the burst of a key frame is
    longer than a short ring, although the VPN is fast enough for the stream.
    """

    parameters = "clip payload_bytes pictures_per_s qdisc txqueuelen vpn"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        vpn = self.start_vpn(variant, stack, NEAR, VIDEO_CPUS)
        before = self.configure_end(NEAR)
        udp_before = udp_drops(NEAR) + udp_drops(FAR)
        self.keep_cpus_awake(stack)
        command = self.command(
            "video",
            cpu=VIDEO_CPUS[1],
            address=FAR.inner,
            netns_server=netns_path(str(FAR.netns)),
            pictures=CLIPS / f"{self.case.clip}.txt",
            rate=self.case.pictures_per_s,
            payload=self.case.payload_bytes,
            seconds=seconds,
        )
        result = finished(command, timeout=seconds + END_GRACE_S)
        after = drain(NEAR.device, result["sent"], before=before.gone)
        metrics = self._metrics(result, before, after)
        metrics["udp_drops"] = udp_drops(NEAR) + udp_drops(FAR) - udp_before
        self.check_peer(vpn)
        return metrics | driver_metrics(NEAR.device)

    @staticmethod
    def _metrics(result: dict[str, Any], before: DeviceCounts, after: DeviceCounts) -> Metrics:
        """Return what the viewer gets, and the account of the near device."""
        delivered = after.link.tx_packets - before.link.tx_packets
        missing = result["sent"] - result["received"]
        return account(result["sent"], delivered, after, before) | {
            "lost_percent": 100 * missing / max(result["sent"], 1),
            "damaged_frames_percent": 100 * result["damaged"] / result["pictures"],
            "delay_p50_ms": result["p50_ns"] / 1e6,
            "delay_p99_ms": result["p99_ns"] / 1e6,
            "latest_send_ms": result["latest_send_ns"] / 1e6,
            "refused": result["send_errors"],
            "received": result["received"],
            # In the VPN, and in its sockets and the receiver's socket.
            "lost_elsewhere": delivered - result["received"],
            "pictures": result["pictures"],
        }
