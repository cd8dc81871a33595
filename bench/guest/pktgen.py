# SPDX-License-Identifier: GPL-2.0-only
"""pktgen floods a TAP, through its qdisc or bypassing it.

::

    kpktgend_0 (CPU 0) --+
                         +--> qdisc --> TAP ring (txqueuelen) --> reader (CPU 1)
    kpktgend_1 (CPU 1) --+

Through the qdisc the senders never wait, and the qdisc drops what exceeds its limit. Bypassing it
(``direct``) they wait while the queue is stopped, like a qdisc. The reader is a kernel thread, a
program, or vhost-net for a client that only returns buffers.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from bench.guest.base import DeviceCounts, Kind, Metrics, account, drain, driver_metrics
from guestlib.drivers import device_flags
from guestlib.kreader import Counts, Direction, KernelReader
from guestlib.pktgen import Pktgen, PktgenResult
from guestlib.process import Service, switches
from guestlib.tundev import IFF_TAP, TunDevice
from guestlib.vhost_client import VhostClient, VhostCounts
from lab.variant import OURS, Variant

DEVICE = "ndtap0"
SETTLE_S = 0.03
"""From the senders' start to the measured window, seconds: queues fill, caches warm up."""

TARGET_US = Path("/sys/module/nodrop/parameters/target_us")

ReaderCounts = Counts | VhostCounts
ReadCounts = Callable[[], ReaderCounts]


def flood_metrics(
    reader: str,
    sent: Sequence[PktgenResult],
    window: tuple[ReaderCounts, ReaderCounts],
    delivered: int,
    counts: DeviceCounts,
) -> Metrics:
    """Return the account of all packets, and the rates in the measured window.

    Args:
        reader: prefix of the reader's metrics.
        sent: the result of each sender.
        window: the reader's counts at the window's start and end.
        delivered: packets read in total.
        counts: of the drained device.
    """
    packets = account(sum(sender.offered for sender in sent), delivered, counts)
    first, last = window
    window_s = (last.now_ns - first.now_ns) / 1e9
    active_s = max(sender.active_s for sender in sent)
    preempted = last.involuntary_switches - first.involuntary_switches
    sleeps = last.voluntary_switches - first.voluntary_switches
    taken = last.packets - first.packets
    metrics = packets | {
        "delivered_pps": taken / window_s,
        "lost_pps": packets["lost"] / active_s,
        "unqueued_pps": packets["unqueued"] / active_s,
        "refused": sum(sender.refused for sender in sent),
        "requeues": counts.qdisc.requeues,
        f"{reader}_sleeps_per_s": sleeps / window_s,
        f"{reader}_involuntary_switches_per_s": preempted / window_s,
        "window_s": window_s,
    }
    if isinstance(first, VhostCounts) and isinstance(last, VhostCounts):
        cpu_ns = last.worker_cpu_ns - first.worker_cpu_ns
        metrics["worker_cpu_us_per_packet"] = cpu_ns / 1e3 / max(taken, 1)
    return metrics


class Flood(Kind):
    """Senders that flood the device, and a reader that a subclass starts."""

    reader: ClassVar[str]
    """Prefix of the reader's metrics."""

    @abstractmethod
    def start_reader(self, tap_fd: int, stack: ExitStack) -> tuple[ReadCounts, ReadCounts]:
        """Configure DEVICE, and start its reader.

        Returns:
            Two functions: one returns the reader's counts, the other stops it and returns the final
            counts.
        """

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        pktgen = Pktgen(
            DEVICE,
            senders=self.case.senders,
            packet_bytes=self.case.packet_bytes,
            direct=self.case.direct,
        )
        tap = stack.enter_context(TunDevice(DEVICE, IFF_TAP | device_flags(variant)))
        counts, end = self.start_reader(tap.fd, stack)
        stack.enter_context(pktgen)
        idle = counts()
        with pktgen.sending():
            time.sleep(SETTLE_S)
            first = counts()
            time.sleep(seconds)
            last = counts()
        sent = pktgen.results()
        with pktgen.removing():
            rest = drain(DEVICE, sum(sender.offered for sender in sent))
            driver = driver_metrics(DEVICE) if variant in OURS else {}
        delivered = end().packets - idle.packets
        return flood_metrics(self.reader, sent, (first, last), delivered, rest) | driver


class ProgramReader:
    """The counts of a program that reads a device; packets are counted by the device."""

    def __init__(self, program: Service, device: str) -> None:
        self._tasks = Path(f"/proc/{program.pid}/task")
        self._packets = Path(f"/sys/class/net/{device}/statistics/tx_packets")

    def read(self) -> Counts:
        """Return the counts so far; those that are unknown are 0."""
        voluntary, involuntary = switches(self._tasks.glob("*/status"))
        return Counts(
            forward=Direction(int(self._packets.read_text())),
            reverse=Direction(0),
            now_ns=time.monotonic_ns(),
            idle_ns=0,
            voluntary_switches=voluntary,
            involuntary_switches=involuntary,
            others=0,
        )


class Tap(Flood):
    """The driver's own cost, and its drops."""

    parameters = (
        "senders txqueuelen qdisc packet_bytes direct reader reader_cpu reader_fifo work_ns"
    )
    reader = "reader"

    def start_reader(self, tap_fd: int, stack: ExitStack) -> tuple[ReadCounts, ReadCounts]:
        cpu, work_ns = self.case.reader_cpu, self.case.work_ns
        fifo = self.case.reader_fifo
        reader: KernelReader | ProgramReader
        if self.choice("reader", "kernel", "user") == "kernel":
            reader = stack.enter_context(KernelReader(tap_fd, cpu=cpu, work_ns=work_ns, fifo=fifo))
        else:
            program = self.tun_reader(tap_fd, "--tap", cpu=cpu, fifo=fifo, work_ns=work_ns)
            stack.enter_context(program)
            reader = ProgramReader(program, DEVICE)
        self.configure(DEVICE)
        return reader.read, reader.read


class Vhost(Flood):
    """Packets delivered by vhost-net, and drops on the way to it."""

    parameters = (
        "senders txqueuelen qdisc packet_bytes direct slots work_ns worker_cpu worker_fifo "
        "client_cpu client_fifo target_us"
    )
    reader = "worker"

    uses_vhost = True

    def measure(self, variant: Variant, seconds: float, stack: ExitStack) -> Metrics:
        if variant in OURS:
            TARGET_US.write_text(str(self.case.target_us), encoding="ascii")
        return super().measure(variant, seconds, stack)

    def start_reader(self, tap_fd: int, stack: ExitStack) -> tuple[ReadCounts, ReadCounts]:
        self.configure(DEVICE)
        # The client's CPU is a number or ``worker``: the CPU of vhost's thread.
        follows = self.case.client_cpu == "worker"
        client = VhostClient(
            self.environment,
            tap_fd,
            slots=self.case.slots,
            work_ns=self.case.work_ns,
            cpu=self.case.worker_cpu if follows else self.case.client_cpu,
            fifo=self.case.client_fifo,
            worker_cpu=self.case.worker_cpu,
            worker_fifo=self.case.worker_fifo,
        )
        stack.enter_context(client)
        return client.counts, client.end
