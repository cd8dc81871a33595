# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows between two namespaces (bench.guest.ends), some with an echo probe beside them.

::

    netns nda (CPU 0)              CPU 1                         netns ndb (CPU 0)
    flows -----+                                               +--> flows
               +--> qdisc --> device --> [forwarder] --> device +
    probe -----+                                               +--> echo
       <--------------------- device <-- [forwarder] <-- device <-- qdisc <--
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from bench.guest.base import Kind, Metrics, drain, driver_metrics
from bench.guest.ends import (
    ADDRESSES,
    DEVICES,
    NETNS,
    Ends,
    ProgramForwarder,
    VhostForwarder,
    kernel_forwarder,
    open_devices,
    remove_addresses,
    wait_until_idle,
)
from guestlib.drivers import device_flags
from guestlib.environment import set_sysctls
from guestlib.kreader import rates
from guestlib.namespaces import inside, namespaces
from guestlib.process import Service, ip_batch
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TAP, IFF_TUN
from lab.variant import Variant

WARM_UP_S = 0.4
"""From the first flow's start to the measured window, seconds: windows open, queues fill."""
LAN, VETH = "ndc", ("ndlan0", "ndlan1")
LAN_ADDRESSES = ("198.18.1.1", "198.18.1.2")
"""Of a gateway's other side: the senders' namespace, and the gateway's device there."""
WATCHED = 0.95
"""Share of the window, from its start, over which multiflow's forwarder is watched."""

Counts = TypeVar("Counts")


class FlowKind(Kind):
    senders = NETNS[0]
    """The namespace of flows and probe."""

    def set_up_ends(self) -> None:
        for netns, device, index in zip(NETNS, DEVICES, (0, 1), strict=True):
            # Without an IPv6 address the kernel sends no packets of its own.
            ip_batch([f"link set dev {device} addrgenmode none"], netns=netns)
            address = f"{ADDRESSES[index]} peer {ADDRESSES[1 - index]}/32"
            self.configure(device, address=address, netns=netns)

    def add_lan(self, stack: ExitStack) -> None:
        """Move the senders behind a gateway, the first namespace, to which a veth pair leads."""
        stack.enter_context(namespaces(LAN))
        ip_batch([f"link add {VETH[0]} netns {LAN} type veth peer name {VETH[1]} netns {NETNS[0]}"])
        for name, netns, address in zip(VETH, (LAN, NETNS[0]), LAN_ADDRESSES, strict=True):
            ip_batch(
                [
                    f"link set dev {name} addrgenmode none",
                    f"address add {address}/30 dev {name}",
                    f"link set dev {name} up",
                ],
                netns=netns,
            )
        ip_batch([f"route add default via {LAN_ADDRESSES[1]}"], netns=LAN)
        ip_batch([f"route add default via {ADDRESSES[0]}"], netns=NETNS[1])
        with inside(NETNS[0]):
            set_sysctls({"net/ipv4/ip_forward": "1"})
        self.senders = LAN

    def flows(self, seconds: float) -> Service:
        """Return the service that sends TCP flows of a fixed window."""
        buffer = self.case.buffer_bytes
        return self.tcp_flows(
            (self.senders, NETNS[1]),
            ADDRESSES[1],
            cpu=self.case.traffic_cpu,
            flows=self.case.flows,
            warm_up_s=WARM_UP_S,
            seconds=seconds,
            sndbuf=buffer,
            rcvbuf=buffer,
        )

    def measure_latency(
        self, seconds: float, count: Callable[[], Counts]
    ) -> tuple[Metrics, Counts, Counts]:
        """Load the devices with flows and probe them during the window.

        Args:
            count: returns a reader's counts.

        Returns:
            Latency (missing if no probe returned), goodput and retransmits, and the reader's counts
            before and after the probe.
        """
        with self.flows(seconds) as flows:
            first = count()
            echoed = self.echo_probe(
                (self.senders, NETNS[1]),
                ADDRESSES[1],
                self.probe_seconds(seconds),
                cpu=self.case.traffic_cpu,
            )
            last = count()
            metrics = self.flow_metrics(flows, seconds)
        if echoed["received"]:
            for name, permille in (("p50", "500"), ("p90", "900"), ("p99", "990"), ("p999", "999")):
                metrics[f"latency_{name}_ms"] = echoed["distribution_ns"][permille] / 1e6
        metrics["probes"] = echoed["sent"]
        metrics["probes_lost"] = echoed["lost"]
        metrics["latest_probe_ms"] = echoed["latest_send_ns"] / 1e6
        return metrics, first, last


class NullVpn(FlowKind):
    """Latency under load, goodput and retransmits of traffic through two TUNs.

    The forwarder does no cryptography. It is a kernel thread: a system call costs 10 us in a
    virtual machine, so a program would hide the driver's cost.

    With ``forwarded``, flows and probe come from a third namespace, by a veth pair and IP
    forwarding, as through a gateway: the packets in the TUN's qdisc belong to no socket.
    """

    parameters = (
        "buffer_bytes flows forwarded probe_interval_us traffic_cpu cpus_sleep offloads qdisc "
        "txqueuelen vpn_cpu work_ns work_per_kb_ns"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        offloads = self.case.offloads
        forwarder = kernel_forwarder(
            open_devices(IFF_TUN | device_flags(variant), stack, offloads=offloads),
            stack,
            cpu=self.case.vpn_cpu,
            back_cpu=-1,
            work_ns=self.case.work_ns,
            work_per_kb_ns=self.case.work_per_kb_ns,
        )
        self.set_up_ends()
        if self.case.forwarded:
            self.add_lan(stack)
        if not self.case.cpus_sleep:
            self.keep_cpus_awake(stack)
        metrics, first, last = self.measure_latency(seconds, forwarder.read)
        counts = [
            drain(device, netns=netns, segments=offloads)
            for device, netns in zip(DEVICES, NETNS, strict=True)
        ]
        metrics |= {
            "lost": sum(count.link.tx_dropped for count in counts),
            "delivered": forwarder.read().packets,
            "qdisc_drops": sum(count.qdisc.drops for count in counts),
            "requeues": sum(count.qdisc.requeues for count in counts),
        }
        if not offloads:
            passed = sum(count.qdisc.packets for count in counts)
            metrics["unaccounted"] = passed - metrics["delivered"] - metrics["lost"]
        return metrics | rates(first, last) | driver_metrics(DEVICES[0], NETNS[0])


class VhostLatency(FlowKind):
    """Latency under load, goodput and retransmits of traffic into a virtual machine.

    Packets have up to 64 kB on their whole way; ``forwarded`` as for NullVpn. With ``mq``
    both devices are multi-queue ones of which one queue is open; below mq is the default qdisc.
    """

    parameters = (
        "buffer_bytes flows forwarded probe_interval_us traffic_cpu client_cpu qdisc slots "
        "txqueuelen work_ns work_per_kb_ns worker_cpu"
    )

    uses_vhost = True

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        multi_queue = IFF_MULTI_QUEUE if self.case.qdisc == "mq" else 0
        forwarder = VhostForwarder(
            device_flags(variant) | multi_queue,
            self.environment,
            stack,
            slots=self.case.slots,
            work_ns=self.case.work_ns,
            work_per_kb_ns=self.case.work_per_kb_ns,
            cpu=self.case.client_cpu,
            worker_cpu=self.case.worker_cpu,
        )
        self.set_up_ends()
        if self.case.forwarded:
            self.add_lan(stack)
        self.keep_cpus_awake(stack)
        metrics, first, last = self.measure_latency(seconds, forwarder.client.counts)
        remove_addresses()
        ends = wait_until_idle(forwarder.carried)
        switches = last.involuntary_switches - first.involuntary_switches
        metrics["worker_involuntary_switches_per_s"] = switches * 1e9 / (last.now_ns - first.now_ns)
        metrics |= _drops(ends) | driver_metrics(DEVICES[0], NETNS[0])
        return metrics | forwarder.metrics(ends)


class Multiflow(FlowKind):
    """Goodput of several flows on one TAP queue, and the reader's work for it.

    The forwarder, a kernel thread, is the bottleneck. Work for the senders that a driver shifts to
    its reader's CPU reduces the goodput.
    """

    parameters = (
        "flows offloads txqueuelen qdisc work_ns forwarder_cpu traffic_cpu back_cpu buffer_bytes"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        forwarder = kernel_forwarder(
            open_devices(IFF_TAP | device_flags(variant), stack, offloads=self.case.offloads),
            stack,
            cpu=self.case.forwarder_cpu,
            back_cpu=self.case.back_cpu,
            work_ns=self.case.work_ns,
        )
        self.set_up_ends()
        self.keep_cpus_awake(stack)
        with self.flows(seconds) as flows:
            first = forwarder.read()
            time.sleep(WATCHED * seconds)
            last = forwarder.read()
            metrics = self.flow_metrics(flows, seconds)
        forward, reverse = wait_until_idle(lambda: forwarder.read().packets)
        packets = last.forward.packets - first.forward.packets
        metrics |= {
            "lost": forward.link.tx_dropped + reverse.link.tx_dropped,
            "delivered": forwarder.read().packets,
            "qdisc_drops": forward.qdisc.drops + reverse.qdisc.drops,
            "requeues": forward.qdisc.requeues + reverse.qdisc.requeues,
            "bytes_per_packet": (last.forward.bytes - first.forward.bytes) / max(packets, 1),
        }
        return metrics | rates(first, last) | driver_metrics(DEVICES[0], NETNS[0])


class Tcp(FlowKind):
    """Goodput of flows through one TAP queue, and drops on the way to their reader.

    The reader is vhost-net with its client, where large packets are not segmented, or a program
    that stands for a VPN: packets of 1500 bytes, one read() and one write() for each.
    """

    parameters = (
        "buffer_bytes client_cpu flows qdisc reader reader_cpu slots traffic_cpu txqueuelen"
    )

    uses_vhost = True

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        forwarder = self._forwarder(device_flags(variant), stack)
        self.set_up_ends()
        self.keep_cpus_awake(stack)
        with self.flows(seconds) as flows:
            sent = self.flow_metrics(flows, seconds)
        remove_addresses()
        ends = wait_until_idle(forwarder.carried)
        metrics = _drops(ends) | driver_metrics(DEVICES[0], NETNS[0])
        return sent | metrics | forwarder.metrics(ends)

    def _forwarder(self, flags: int, stack: ExitStack) -> VhostForwarder | ProgramForwarder:
        cpu = self.case.reader_cpu
        if self.choice("reader", "vhost", "user") == "vhost":
            return VhostForwarder(
                flags,
                self.environment,
                stack,
                slots=self.case.slots,
                cpu=self.case.client_cpu,
                worker_cpu=cpu,
            )
        fds = open_devices(IFF_TAP | flags, stack, offloads=False)
        command = self.command("forwarder", cpu=cpu, fd_a=fds[0], fd_b=fds[1])
        return ProgramForwarder(stack.enter_context(Service(command, pass_fds=fds)))


def _drops(ends: Ends) -> Metrics:
    """Return the drops of the data senders' device, and of the ACK senders' (``lost_back``)."""
    forward, reverse = ends
    return {
        **forward.driver_drops(),
        "lost_back": reverse.link.tx_dropped,
        "qdisc_drops": forward.qdisc.drops + reverse.qdisc.drops,
        "requeues": forward.qdisc.requeues,
    }
