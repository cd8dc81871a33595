# SPDX-License-Identifier: GPL-2.0-only
"""Two network namespaces with a TAP each, joined by vhost-net and a client as its guest."""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest.scenarios.base import DeviceCounts, Metrics
from bench.guest.vpn import DEVICES, NETNS
from guestlib.drivers import device_flags
from guestlib.environment import Environment
from guestlib.process import ip_batch
from guestlib.tundev import IFF_TAP, TSO_OFFLOADS, TunDevice
from guestlib.vhost_client import VhostClient
from lab.variant import Variant

SEGMENTS_MAX = 64
"""Of one packet: 64 kB of TCP are 46 segments of 1448 bytes."""

Ends = tuple[DeviceCounts, DeviceCounts]
"""Of the data senders' device, and of the ACK senders' device."""


def outside(value: int, low: int, high: int) -> int:
    """Return by how much a value exceeds or falls below a range."""
    return value - min(max(value, low), high)


def open_taps(variant: Variant, stack: ExitStack, offloads: int) -> list[int]:
    """Open both TAPs and move each into its namespace, which exists."""
    flags = IFF_TAP | device_flags(variant)
    taps = [stack.enter_context(TunDevice(name, flags, offloads=offloads)) for name in DEVICES]
    ends = zip(DEVICES, NETNS, strict=True)
    ip_batch([f"link set dev {name} netns {netns}" for name, netns in ends])
    return [tap.fd for tap in taps]


def no_addresses() -> None:
    """Remove the devices' addresses: TCP cannot send late packets, such as a last FIN."""
    for name, netns in zip(DEVICES, NETNS, strict=True):
        ip_batch([f"address flush dev {name}"], netns=netns)


class VhostReader:
    """vhost-net and its client between two TAPs; large packets are not segmented.

    Args:
        variant: of the driver.
        environment: where the client is.
        stack: closes the TAPs and ends the client.
        slots, work_ns, cpu, worker_cpu: as for VhostClient.
    """

    def __init__(
        self,
        variant: Variant,
        environment: Environment,
        stack: ExitStack,
        *,
        slots: int,
        cpu: int,
        worker_cpu: int,
        work_ns: int = 0,
    ) -> None:
        near, far = open_taps(variant, stack, TSO_OFFLOADS)
        self.client = VhostClient(
            environment,
            near,
            far_fd=far,
            slots=slots,
            work_ns=work_ns,
            cpu=cpu,
            worker_cpu=worker_cpu,
        )
        stack.enter_context(self.client)

    def carried(self) -> int:
        """Return the packets forwarded in both directions."""
        counts = self.client.counts()
        return counts.packets + counts.sent

    def metrics(self, ends: Ends) -> Metrics:
        """Account for packets after the drivers, and for segments after the first qdisc.

        The qdisc counts a large packet's segments, but a driver that drops it counts the packet. So
        each drop may explain up to SEGMENTS_MAX missing segments.
        """
        forward, reverse = ends
        cpu_ns = self.client.cpu_ns
        end = self.client.end()
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
