# SPDX-License-Identifier: GPL-2.0-only
"""Two network namespaces with a TUN or TAP device each, and what joins their devices.

::

    netns nda                                                       netns ndb
    198.18.0.1 --> qdisc --> ndvpn-a --> [forwarder] --> ndvpn-b --> 198.18.0.2

The forwarder is a kernel thread, a program, or vhost-net with a client (which stands for a virtual
machine; the second TAP stands for the network inside it).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.guest.base import DRAIN_TIMEOUT_S, DeviceCounts, Metrics
from guestlib.environment import Environment
from guestlib.kreader import KernelReader
from guestlib.namespaces import namespaces
from guestlib.process import Service, ip_batch
from guestlib.tundev import IFF_TAP, TSO_OFFLOADS, TunDevice
from guestlib.vhost_client import VhostClient

NETNS = ("nda", "ndb")
DEVICES = ("ndvpn-a", "ndvpn-b")
ADDRESSES = ("198.18.0.1", "198.18.0.2")
SEGMENTS_MAX = 64
"""Of one packet: 64 kB of TCP are 46 segments of 1448 bytes."""

Ends = tuple[DeviceCounts, DeviceCounts]
"""Of the data senders' device, and of the ACK senders' device."""


def open_devices(flags: int, stack: ExitStack, *, offloads: bool) -> list[int]:
    """Create both namespaces and a device in each; return the devices' file descriptors.

    Args:
        flags: IFF_TUN or IFF_TAP and others.
        offloads: the reader takes large packets unsegmented.
    """
    stack.enter_context(namespaces(*NETNS))
    taken = TSO_OFFLOADS if offloads else 0
    devices = [stack.enter_context(TunDevice(name, flags, offloads=taken)) for name in DEVICES]
    pairs = zip(DEVICES, NETNS, strict=True)
    ip_batch([f"link set dev {name} netns {netns}" for name, netns in pairs])
    return [device.fd for device in devices]


def remove_addresses() -> None:
    """Remove the devices' addresses: TCP cannot send late packets, such as a last FIN."""
    for name, netns in zip(DEVICES, NETNS, strict=True):
        ip_batch([f"address flush dev {name}"], netns=netns)


def wait_until_idle(carried: Callable[[], int]) -> Ends:
    """Wait until no packet moves any more; return both devices' counters.

    A qdisc counts a large packet's segments, but a device counts the packet, so their counters
    cannot be compared. Instead, no qdisc may hold a packet, and neither the forwarder's nor the
    devices' counts may change between two samples, which take some milliseconds.

    Args:
        carried: returns how many packets have been forwarded so far.
    """
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    before: list[int] = []
    while True:
        near, far = (DeviceCounts.of(*end) for end in zip(DEVICES, NETNS, strict=True))
        now = [carried(), near.link.tx_packets, far.link.tx_packets]
        still = now == before and not near.qdisc.queued and not far.qdisc.queued
        if still or time.monotonic() > deadline:
            return near, far
        before = now


def kernel_forwarder(
    fds: list[int],
    stack: ExitStack,
    *,
    cpu: int,
    back_cpu: int,
    work_ns: int,
    work_per_kb_ns: int = 0,
) -> KernelReader:
    """Start the in-kernel forwarder; return the one from the first device to the second.

    Args:
        cpu: its CPU, -1: any.
        back_cpu: CPU of another forwarder for the reverse direction; -1: one forwards both.
        work_ns, work_per_kb_ns: busy time per packet, and for each 1024 bytes of it, ns.
    """
    first, second = fds
    one_way = back_cpu >= 0
    reader = partial(KernelReader, one_way=one_way, work_ns=work_ns, work_per_kb_ns=work_per_kb_ns)
    forwarder = reader(first, second, cpu=cpu)
    stack.enter_context(forwarder)
    if one_way:
        back = reader(second, first, cpu=back_cpu)
        stack.enter_context(back)
    return forwarder


class ProgramForwarder:
    """A program that forwards packets without offloads by read() and write()."""

    def __init__(self, program: Service) -> None:
        self._program = program

    def carried(self) -> int:
        """Return 0: it reports only at its end."""
        return 0

    def metrics(self, ends: Ends) -> Metrics:
        """Account for packets that the qdiscs passed on; without offloads the counts agree."""
        cpu_ns = self._program.cpu_ns
        result = self._program.result()
        forward, reverse = result["a_to_b"], result["b_to_a"]
        passed = sum(end.qdisc.packets for end in ends)
        lost = sum(end.link.tx_dropped for end in ends)
        return {
            "delivered": forward["packets"],
            "bytes_per_packet": forward["bytes"] / max(forward["packets"], 1),
            "unaccounted": passed - forward["packets"] - reverse["packets"] - lost,
            "reader_cpu_us_per_packet": cpu_ns / 1e3 / max(forward["packets"], 1),
        }


class VhostForwarder:
    """vhost-net and its client between two TAPs; large packets are not segmented.

    Args:
        flags: of the driver.
        environment: where the client is.
        stack: closes the TAPs and ends the client.
        slots, work_ns, work_per_kb_ns, cpu, worker_cpu: as for VhostClient.
    """

    def __init__(
        self,
        flags: int,
        environment: Environment,
        stack: ExitStack,
        *,
        slots: int,
        cpu: int,
        worker_cpu: int,
        work_ns: int = 0,
        work_per_kb_ns: int = 0,
    ) -> None:
        near, far = open_devices(IFF_TAP | flags, stack, offloads=True)
        self.client = VhostClient(
            environment,
            near,
            far_fd=far,
            slots=slots,
            work_ns=work_ns,
            work_per_kb_ns=work_per_kb_ns,
            cpu=cpu,
            worker_cpu=worker_cpu,
        )
        stack.enter_context(self.client)

    def carried(self) -> int:
        counts = self.client.counts()
        return counts.packets + counts.sent

    def metrics(self, ends: Ends) -> Metrics:
        """Account for packets after the drivers, and for segments after the first qdisc.

        The qdisc counts a large packet's segments, but a driver that drops it counts the packet. So
        each drop may explain up to SEGMENTS_MAX missing segments. noqueue counts nothing.
        """
        forward, reverse = ends
        cpu_ns = self.client.cpu_ns
        end = self.client.end()
        lost = forward.link.tx_dropped
        missing = forward.qdisc.packets - end.segments if forward.has_queue else lost
        explained = min(max(missing, lost), SEGMENTS_MAX * lost)
        return {
            "delivered": end.packets,
            "bytes_per_packet": end.bytes / max(end.packets, 1),
            "refused_by_client": end.refused,
            "unaccounted": abs(forward.link.tx_packets - end.packets)
            + abs(reverse.link.tx_packets - end.sent)
            + abs(missing - explained),
            "reader_cpu_us_per_packet": end.worker_cpu_ns / 1e3 / max(end.packets, 1),
            "client_cpu_us_per_packet": (cpu_ns - end.worker_cpu_ns) / 1e3 / max(end.packets, 1),
        }
