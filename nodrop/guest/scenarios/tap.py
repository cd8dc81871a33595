# SPDX-License-Identifier: GPL-2.0-only
"""pktgen into a TAP that the kernel itself or a program reads, through its qdisc or past it.

::

    kpktgend_0 (CPU 0) --+
                         +--> qdisc --> TAP ring (txqueuelen) --> reader (CPU 1)
    kpktgend_1 (CPU 1) --+

Through the qdisc the senders never wait: what it cannot hold it drops. Past it (``direct``)
they wait while the driver has stopped its queue, as a qdisc would. The driver's part is to
lose nothing between there and the reader, and to cost nothing.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from nodrop.guest.command import Service
from nodrop.guest.counters import driver_counters
from nodrop.guest.drivers import device_flags, flag_words
from nodrop.guest.failure import GuestError
from nodrop.guest.kreader import KernelReader
from nodrop.guest.pktgen import Pktgen
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios.base import Metrics, Scenario, drain, driver_metrics
from nodrop.guest.scenarios.flood import flood_metrics
from nodrop.guest.tundev import IFF_TAP, TunDevice, configure
from nodrop.guest.ureader import UserReader, command

DEVICE = "ndtap0"
SETTLE_S = 0.03
"""From the last sender's start to the measured window: queues fill, caches warm."""


class Tap(Scenario):
    """The driver's own cost, and what it loses."""

    parameters = frozenset(
        {
            "senders",
            "txqueuelen",
            "qdisc",
            "packet_bytes",
            "direct",
            "reader",
            "reader_cpu",
            "reader_fifo",
            "work_ns",
        }
    )

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Send for the window, let the queue drain, account for every packet."""
        pktgen = Pktgen(
            DEVICE,
            senders=self.number("senders"),
            packet_bytes=self.number("packet_bytes"),
            direct=self.flag("direct"),
        )
        with ExitStack() as stack:
            reader = self._reader(variant, stack)
            configure(DEVICE, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            with pktgen:
                return self._measure(variant, pktgen, reader, seconds)

    def _reader(self, variant: Variant, stack: ExitStack) -> KernelReader | UserReader:
        cpu, work_ns = self.number("reader_cpu"), self.number("work_ns")
        fifo, kind = self.flag("reader_fifo"), self.text("reader")
        if kind == "kernel":
            tap = stack.enter_context(TunDevice(DEVICE, IFF_TAP | device_flags(variant)))
            reader = KernelReader(tap.fd, cpu=cpu, work_ns=work_ns, fifo=fifo)
            return stack.enter_context(reader)
        if kind != "user":
            raise GuestError(f"a reader is kernel or user, not '{kind}'")
        program = self.environment.bin / "tun_reader"
        words = command(program, DEVICE, flag_words(variant), cpu=cpu, work_ns=work_ns, fifo=fifo)
        return UserReader(stack.enter_context(Service(words)), DEVICE)

    def _measure(
        self, variant: Variant, pktgen: Pktgen, reader: KernelReader | UserReader, seconds: float
    ) -> Metrics:
        idle = reader.read()
        with pktgen.sending():
            time.sleep(SETTLE_S)
            first = reader.read()
            time.sleep(seconds)
            last = reader.read()
        sent = pktgen.results()
        offered = sum(sender.offered for sender in sent)
        with pktgen.removing():
            counts = drain(DEVICE, offered)
            driver = driver_counters(DEVICE) if variant is Variant.NODROP else {}
        end = reader.read()
        metrics = flood_metrics("reader", sent, (first, last), end.packets - idle.packets, counts)
        return metrics | driver_metrics(driver)
