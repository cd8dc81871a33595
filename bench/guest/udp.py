# SPDX-License-Identifier: GPL-2.0-only
"""UDP into a TUN or TAP: a device without a reader, many queues, and a VPN that encrypts."""

from __future__ import annotations

import errno
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from bench.guest.base import END_GRACE_S, Kind, Metrics, account, drain, driver_metrics
from guestlib.drivers import device_flags
from guestlib.environment import NO_IPV6, GuestError, set_sysctls
from guestlib.kreader import KernelReader
from guestlib.namespaces import inside
from guestlib.netstats import link_counters
from guestlib.process import Service, finished, ip_batch, tool
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TAP, IFF_TUN, UDP_OFFLOADS, TunDevice
from guestlib.vpns import VETH, End, veth_pair
from lab.variant import Variant

DEVICE = "nddev0"
LOCAL, REMOTE = "198.18.0.1", "198.18.0.2"
ADDRESS = f"{LOCAL} peer {REMOTE}/32"
PORT = 9
MULTICAST_PACKETS = 600
"""More than a socket's default buffer holds."""
MULTICAST_LIMIT_S = 2
"""A send() that takes longer counts as blocked for good."""
QUEUES_SETTLE_S = 0.03
"""From the senders' start to the measured window, seconds."""
MORE_S = 10.0
"""Senders that are stopped after the window would otherwise send for so long, seconds."""
NEAR = End("nda", "ndesp-a", "192.0.2.1", LOCAL)
FAR = End("ndb", "ndesp-b", "192.0.2.2", REMOTE)
ESP_PORT = 4500
VETH_SETTLE_S = 0.05
"""From the near end's last packet until that has passed the veth pair, seconds."""


@dataclass(frozen=True)
class Payload:
    """A packet's payload; the packet takes one slot of the ring and counts as one.

    Attributes:
        size: bytes, of each segment if there are several.
        segments: number of segments in a packet, on a device with UDP offloads; 0: a plain packet.
    """

    size: int
    segments: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "1472" or "44x1472".

        Raises:
            GuestError: it is neither.
        """
        segments, cross, size = text.rpartition("x")
        try:
            payload = cls(int(size), int(segments) if cross else 0)
        except ValueError:
            payload = cls(0, 0)
        if payload.size <= 0 or (cross and payload.segments <= 0):
            raise GuestError(f"a payload is 1472 or 44x1472 bytes, not '{text}'")
        return payload

    @property
    def offloads(self) -> int:
        return UDP_OFFLOADS if self.segments else 0


def multicast(device: str, packets: int) -> tuple[float, int]:
    """Send IPv6 multicast and neighbour discovery through a device from one socket.

    Stop at the first send() that blocks for MULTICAST_LIMIT_S.

    Returns:
        The longest time of a send(), ms, and how many were blocked.
    """
    longest_ms, held = 0.0, 0
    scope = socket.if_nametoindex(device)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        limit = struct.pack("ll", MULTICAST_LIMIT_S, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        for number in range(packets):
            address = "fe80::2" if number % 16 == 0 else "ff02::1"
            started = time.monotonic()
            try:
                sock.sendto(bytes(64), (address, PORT, 0, scope))
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    raise
                held += error.errno == errno.EAGAIN
            longest_ms = max(longest_ms, (time.monotonic() - started) * 1e3)
            if held:
                break
    return longest_ms, held


class Guard(Kind):
    """How long a device without a reader blocks the senders of UDP.

    ::

        udp_sender (N sockets) ---+
                                  +--> qdisc --> TUN or TAP ring, never read
        then: ff02::1, fe80::2 ---+

    A driver with backpressure blocks the senders, and must release them if no reader ever comes.
    Multicast and neighbour discovery follow, because upstream's first version made a program hang
    that used them.
    """

    parameters = "device senders txqueuelen qdisc payload_bytes"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        is_tap = self.choice("device", "tun", "tap") == "tap"
        flags = (IFF_TAP if is_tap else IFF_TUN) | device_flags(variant)
        stack.enter_context(TunDevice(DEVICE, flags))
        # guestlib.environment has switched IPv6 off.
        set_sysctls({f"net/ipv6/conf/{DEVICE}/disable_ipv6": "0"})
        self.configure(DEVICE, address=ADDRESS)
        lines = [f"address add fe80::1/64 dev {DEVICE} nodad"]
        if is_tap:
            lines.append(f"neigh replace {REMOTE} lladdr 02:00:00:00:00:02 dev {DEVICE}")
        ip_batch(lines)
        senders = self.case.senders
        command = self.command(
            "udp_sender",
            dest=REMOTE,
            senders=senders,
            size=self.case.payload_bytes,
            seconds=seconds,
        )
        sent = finished(command, timeout=seconds + END_GRACE_S)
        longest_ms, held = multicast(DEVICE, MULTICAST_PACKETS)
        driver = driver_metrics(DEVICE)
        return driver | {
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
            "not_released": sent["held_at_the_end"],
            "released": senders - sent["held_at_the_end"],
            "multicast_longest_send_ms": longest_ms,
            "multicast_not_released": held,
            "trips": sum(driver[name] for name in driver if name.endswith("_guard_trips")),
            "sent": sent["sent"],
            "refused": sent["errors"],
            "dropped": link_counters(DEVICE).tx_dropped,
            "window_s": sent["seconds"],
        }


class Scale(Kind):
    """Delivered and dropped packets by queues, flows and packet size.

    ::

        flow 1 --+             +--> fq_codel --> queue 1 --> reader (a kernel thread)
        flow 2 --+--> by hash -+        (mq)
        flow N --+             +--> fq_codel --> queue M --> reader (a kernel thread)

    The scheduler places senders and readers. A sender's system call and a reader's ``work_ns`` hide
    the driver's cost of a packet, which bench.guest.instructions counts.
    """

    parameters = "flows mtu payload qdisc queues txqueuelen work_ns"

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        payload = Payload.parse(self.case.payload)
        queues = self.case.queues
        flags = IFF_TUN | device_flags(variant) | (IFF_MULTI_QUEUE if queues > 1 else 0)
        readers = []
        for _ in range(queues):
            tun = stack.enter_context(TunDevice(DEVICE, flags, offloads=payload.offloads))
            reader = KernelReader(tun.fd, work_ns=self.case.work_ns)
            readers.append(stack.enter_context(reader))
        self.keep_cpus_awake(stack)
        tool(["ip", "link", "set", "dev", DEVICE, "mtu", str(self.case.mtu)])
        self.configure(DEVICE, qdisc="mq" if queues > 1 else "", address=ADDRESS)
        command = self.command(
            "udp_sender",
            "--announce",
            dest=REMOTE,
            senders=self.case.flows,
            seconds=seconds + MORE_S,
            size=payload.size,
            segments=max(payload.segments, 1),
        )
        with Service(command) as sender:
            time.sleep(QUEUES_SETTLE_S)
            first = [reader.read() for reader in readers]
            time.sleep(seconds)
            last = [reader.read() for reader in readers]
            sent = sender.result()
        counts = drain(DEVICE, sent["sent"])
        read = [reader.read().packets for reader in readers]
        delivered_pps = sum(
            (end.packets - begin.packets) * 1e9 / (end.now_ns - begin.now_ns)
            for begin, end in zip(first, last, strict=True)
        )
        metrics: Metrics = {
            "delivered_pps": delivered_pps,
            "sender_cpu_us_per_packet": sent["cpu_seconds"] * 1e6 / max(sum(read), 1),
            "busiest_queue_share": max(read) / max(sum(read), 1),
            "refused": sent["errors"],
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
        }
        return metrics | account(sent["sent"], sum(read), counts) | driver_metrics(DEVICE)


class Esp(Kind):
    """A flood of a user-space VPN that encrypts each packet: drops, and the CPU time of each part.

    ::

        netns nda                                          netns ndb
        udp_sender --> qdisc --> TUN --> esp ==> veth ==> socket: udp_sink
        (sender_cpu)                   (vpn_cpu)          (sender_cpu)

    The sender and the VPN have a CPU each. The sink at the far end shares the sender's CPU and has
    priority over it, so it is never late. It counts the encrypted packets in batches, which costs
    next to nothing: the near end is what is measured.
    """

    parameters = (
        "batch buffer_bytes payload_bytes qdisc sender_batch sender_cpu sender_rate_pps txqueuelen "
        "vpn_cpu"
    )

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        sender_cpu = self.case.sender_cpu
        stack.enter_context(veth_pair(NEAR, FAR))
        for end in (NEAR, FAR):
            with inside(end.netns):
                set_sysctls(NO_IPV6)
        sink_command = self.command(
            "udp_sink",
            cpu=sender_cpu,
            fifo=True,
            netns=FAR.netns,
            local=FAR.outer,
            port=ESP_PORT,
            rcvbuf=self.case.buffer_bytes,
        )
        sink = stack.enter_context(Service(sink_command))
        tun = stack.enter_context(TunDevice(NEAR.device, IFF_TUN | device_flags(variant)))
        ip_batch([f"link set dev {NEAR.device} netns {NEAR.netns}"])
        vpn_command = self.command(
            "esp",
            cpu=self.case.vpn_cpu,
            netns=NEAR.netns,
            fd=tun.fd,
            local=NEAR.outer,
            remote=FAR.outer,
            port=ESP_PORT,
            batch=self.case.batch,
        )
        vpn = stack.enter_context(Service(vpn_command, pass_fds=[tun.fd]))
        self.keep_cpus_awake(stack)
        self.configure(NEAR.device, address=ADDRESS, netns=NEAR.netns)
        send_command = self.command(
            "udp_sender",
            cpu=sender_cpu,
            netns=NEAR.netns,
            dest=FAR.inner,
            port=PORT,
            size=self.case.payload_bytes,
            seconds=seconds,
            batch=self.case.sender_batch,
            rate=self.case.sender_rate_pps,
        )
        sent = finished(send_command, timeout=seconds + END_GRACE_S)
        counts = drain(NEAR.device, sent["sent"], netns=NEAR.netns)
        driver = driver_metrics(NEAR.device, NEAR.netns)
        read = vpn.result()
        time.sleep(VETH_SETTLE_S)
        drops = {
            "lost_near_end": read["refused"],
            "lost_veth": link_counters(VETH[0], netns=NEAR.netns).tx_dropped,
        }
        received = sink.result()
        drops["lost_outer_socket"] = received["socket_drops"]
        elsewhere = sum(drops.values())
        metrics = account(sent["sent"], received["packets"], counts, elsewhere=elsewhere)
        metrics |= drops | {"lost_elsewhere": elsewhere}
        return metrics | self._rates(sent, read, received) | driver

    def _rates(
        self, sent: dict[str, Any], read: dict[str, Any], received: dict[str, Any]
    ) -> Metrics:
        """Return the rates, from the results of the sender, the VPN and the sink."""
        mbit = self.case.payload_bytes * 8 / 1e6
        packets = received["packets"]
        metrics: Metrics = {
            "sent_mbit_per_s": sent["sent"] * mbit / sent["seconds"],
            "received_mbit_per_s": packets * mbit / max(received["active_seconds"], 1e-6),
            "loss_percent": 100 * (sent["sent"] - packets) / max(sent["sent"], 1),
            "refused": sent["errors"],
            "longest_send_ms": sent["longest_send_ns"] / 1e6,
        }
        for name, program in (("sender", sent), ("vpn", read)):
            cpu_us = program["cpu_seconds"] * 1e6
            metrics[f"{name}_cpu_us_per_packet"] = cpu_us / max(packets, 1)
            for kind in ("voluntary", "involuntary"):
                per_s = program[f"{kind}_switches"] / sent["seconds"]
                metrics[f"{name}_{kind}_switches_per_s"] = per_s
        return metrics
