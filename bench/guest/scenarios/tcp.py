# SPDX-License-Identifier: GPL-2.0-only
"""iperf3's TCP flows through one TAP queue, read by vhost-net or a program.

::

    netns nda (CPU 0)             CPU 1                         netns ndb (CPU 0)
    iperf3 -c --> qdisc --> TAP --> [vhost] --> [client] --> TAP --> iperf3 -s
        <---------- ACKs <--------- [vhost] <-- [client] <-- TAP <-- qdisc <--

The client stands for a virtual machine (lab/traffic/vhost_far.c), and the second TAP for the
network inside it; large packets are not segmented. The program (lab/traffic/forwarder.c) stands for
a VPN: packets of 1500 bytes, one ``read()`` and one ``write()`` for each.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest import iperf
from bench.guest.plan import Parameters
from bench.guest.scenarios.base import DeviceCounts, Metrics, Scenario, driver_metrics
from bench.guest.vpn import ADDRESSES, DEVICES, NETNS, set_up_ends, wait_until_idle
from lab.guest.drivers import awake_cpus, device_flags
from lab.guest.failure import GuestError
from lab.guest.namespaces import namespaces
from lab.guest.netstats import driver_counters
from lab.guest.process import Service, ip_batch
from lab.guest.tundev import IFF_TAP, TSO_OFFLOADS, TunDevice
from lab.guest.variant import Variant
from lab.guest.vhost_client import VhostClient

WARM_UP_S = 0.4
"""From the first flow's start to the measured window, seconds: windows open, queues fill."""
SEGMENTS_MAX = 64
"""Of one packet: 64 kB of TCP are 46 segments of 1448 bytes."""

Ends = tuple[DeviceCounts, DeviceCounts]
"""Of the data senders' device, and of the ACK senders' device."""


def outside(value: int, low: int, high: int) -> int:
    """Return by how much a value exceeds or falls below a range."""
    return value - min(max(value, low), high)


class VhostReader:
    """vhost-net and its client."""

    def __init__(self, client: VhostClient) -> None:
        self._client = client

    def carried(self) -> int:
        """Return the packets forwarded in both directions."""
        counts = self._client.counts()
        return counts.packets + counts.sent

    def metrics(self, ends: Ends) -> Metrics:
        """Account for packets after the drivers, and for segments after the first qdisc.

        The qdisc counts a large packet's segments, but a driver that drops it counts the packet. So
        each drop may explain up to SEGMENTS_MAX missing segments.
        """
        forward, reverse = ends
        cpu_ns = self._client.cpu_ns
        end = self._client.end()
        lost = forward.link.tx_dropped
        missing = forward.qdisc.packets - end.segments
        return {
            "delivered": end.packets,
            "bytes_per_packet": end.bytes / max(end.packets, 1),
            "refused_by_client": end.refused,
            "unaccounted": abs(forward.link.tx_packets - end.packets)
            + abs(reverse.link.tx_packets - end.sent)
            + abs(outside(missing, lost, SEGMENTS_MAX * lost)),
            "reader_cpu_us_per_packet": end.worker_cpu_ns / 1e3 / max(end.packets, 1),
            "client_cpu_us_per_packet": (cpu_ns - end.worker_cpu_ns) / 1e3 / max(end.packets, 1),
        }


class UserReader:
    """A program that forwards packets by read() and write()."""

    def __init__(self, program: Service) -> None:
        self._program = program

    def carried(self) -> int:
        """Return 0: it reports only at its end."""
        return 0

    def metrics(self, ends: Ends) -> Metrics:
        """Account for packets that the qdiscs passed on; without offloads the counts agree."""
        cpu_ns = self._program.cpu_ns
        result = self._program.result()
        forward, reverse = (result[way] for way in ("a_to_b", "b_to_a"))
        given = sum(end.qdisc.packets for end in ends)
        lost = sum(end.link.tx_dropped for end in ends)
        return {
            "delivered": forward["packets"],
            "bytes_per_packet": forward["bytes"] / max(forward["packets"], 1),
            "unaccounted": given - forward["packets"] - reverse["packets"] - lost,
            "reader_cpu_us_per_packet": cpu_ns / 1e3 / max(forward["packets"], 1),
        }


class Tcp(Scenario):
    """Goodput of several flows, and drops on the way to their reader."""

    parameters = frozenset(
        {
            "buffer_bytes",
            "client_cpu",
            "flows",
            "qdisc",
            "reader",
            "reader_cpu",
            "slots",
            "traffic_cpu",
            "txqueuelen",
        }
    )
    uses_vhost = True

    @classmethod
    def host_programs(cls, parameters: Parameters) -> tuple[str, ...]:
        """Return iperf3 as well."""
        return (*super().host_programs(parameters), "iperf3")

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Run iperf3, drain the queues, account for every packet."""
        with ExitStack() as stack:
            stack.enter_context(namespaces(*NETNS))
            reader = self._reader(variant, stack)
            set_up_ends(txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            stack.enter_context(awake_cpus(self.environment.modules))
            flows = iperf.run(
                (NETNS[0], NETNS[1]),
                ADDRESSES[1],
                cpus=(self.text("traffic_cpu"), self.text("traffic_cpu")),
                flows=self.number("flows"),
                buffer_bytes=self.number("buffer_bytes"),
                warm_up_s=WARM_UP_S,
                seconds=seconds,
            )
            # Without addresses, TCP cannot send late packets, such as a last FIN.
            for name, netns in zip(DEVICES, NETNS, strict=True):
                ip_batch([f"address flush dev {name}"], netns=netns)
            forward, reverse = wait_until_idle(reader.carried)
            driver = driver_counters(DEVICES[0], netns=NETNS[0])
            carried = reader.metrics((forward, reverse))
        metrics: Metrics = {
            "goodput_mbit_per_s": flows.bytes * 8 / flows.window_s / 1e6,
            "retransmits": flows.retransmits,
            "lost": forward.link.tx_dropped,
            "lost_back": reverse.link.tx_dropped,
            "qdisc_drops": forward.qdisc.drops + reverse.qdisc.drops,
            "requeues": forward.qdisc.requeues,
            "window_s": flows.window_s,
        }
        return metrics | carried | driver_metrics(driver)

    def _reader(self, variant: Variant, stack: ExitStack) -> VhostReader | UserReader:
        kind = self.text("reader")
        if kind == "vhost":
            return VhostReader(self._client(variant, stack))
        if kind != "user":
            raise GuestError(f"a reader is vhost or user, not '{kind}'")
        command = ["taskset", "--cpu-list", self.text("reader_cpu")]
        command.append(str(self.environment.bin / "forwarder"))
        fds = self._taps(variant, stack, 0)
        command += ["--fd-a", str(fds[0]), "--fd-b", str(fds[1])]
        return UserReader(stack.enter_context(Service(command, pass_fds=fds)))

    def _taps(self, variant: Variant, stack: ExitStack, offloads: int) -> list[int]:
        """Open both TAPs and move each into its namespace."""
        flags = IFF_TAP | device_flags(variant)
        taps = [stack.enter_context(TunDevice(name, flags, offloads=offloads)) for name in DEVICES]
        ends = zip(DEVICES, NETNS, strict=True)
        ip_batch([f"link set dev {name} netns {netns}" for name, netns in ends])
        return [tap.fd for tap in taps]

    def _client(self, variant: Variant, stack: ExitStack) -> VhostClient:
        near, far = self._taps(variant, stack, TSO_OFFLOADS)
        client = VhostClient(
            self.environment,
            near,
            far_fd=far,
            slots=self.number("slots"),
            cpu=self.number("client_cpu"),
            worker_cpu=self.number("reader_cpu"),
        )
        return stack.enter_context(client)
