# SPDX-License-Identifier: GPL-2.0-only
"""pktgen through a qdisc into a TAP that the kernel itself reads.

::

    kpktgend_0 (CPU 0) --+
                         +--> qdisc --> TAP ring (txqueuelen) --> kreader (CPU 1)
    kpktgend_1 (CPU 1) --+

The senders never wait: what the qdisc cannot hold it drops. The driver's part is to lose
nothing between the qdisc and the reader, and to cost nothing.
"""

from __future__ import annotations

import time

from nodrop.guest.account import Account
from nodrop.guest.counters import driver_counters
from nodrop.guest.drivers import device_flags
from nodrop.guest.failure import GuestError
from nodrop.guest.kreader import KernelReader
from nodrop.guest.pktgen import Pktgen
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios.base import DeviceCounts, Metrics, Scenario, account_metrics, drain
from nodrop.guest.tundev import IFF_TAP, TunDevice, configure

DEVICE = "ndtap0"
START_TIMEOUT_S = 2.0
SETTLE_S = 0.03
"""From the first packet to the measured window: queues fill, caches warm."""


class Tap(Scenario):
    """The driver's own cost, and what it loses, without system calls."""

    parameters = frozenset(
        {
            "senders",
            "txqueuelen",
            "qdisc",
            "packet_bytes",
            "reader_cpu",
            "reader_fifo",
            "work_ns",
        }
    )

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Send for the window, let the queue drain, account for every packet."""
        pktgen = Pktgen(
            DEVICE, senders=self.number("senders"), packet_bytes=self.number("packet_bytes")
        )
        with (
            TunDevice(DEVICE, IFF_TAP | device_flags(variant)) as tap,
            KernelReader(
                tap.fd,
                cpu=self.number("reader_cpu"),
                work_ns=self.number("work_ns"),
                fifo=self.flag("reader_fifo"),
            ) as reader,
        ):
            configure(DEVICE, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            with pktgen.configured():
                return self._measure(pktgen, reader, seconds)

    def _measure(self, pktgen: Pktgen, reader: KernelReader, seconds: float) -> Metrics:
        idle = reader.read()
        before = DeviceCounts.of(DEVICE)
        with pktgen.sending():
            self._wait_first(reader, idle.packets)
            time.sleep(SETTLE_S)
            first = reader.read()
            time.sleep(seconds)
            last = reader.read()
        drain(DEVICE, lambda: reader.read().packets)
        end = reader.read()
        after = DeviceCounts.of(DEVICE)

        sent = pktgen.results()
        account = Account(
            offered=sum(sender.offered for sender in sent),
            delivered=end.packets - idle.packets,
            queued=after.qdisc.queued,
            lost=after.link.tx_dropped - before.link.tx_dropped,
            qdisc_drops=after.qdisc.drops - before.qdisc.drops,
        )
        window_s = (last.now_ns - first.now_ns) / 1e9
        active_s = max(sender.active_s for sender in sent)
        switches = last.involuntary_switches - first.involuntary_switches
        sleeps = last.voluntary_switches - first.voluntary_switches
        metrics: Metrics = {
            "delivered_pps": (last.packets - first.packets) / window_s,
            "offered_pps": account.offered / active_s,
            "lost_pps": account.lost / active_s,
            "refused": sum(sender.refused for sender in sent),
            "requeues": after.qdisc.requeues - before.qdisc.requeues,
            "reader_sleeps_per_s": sleeps / window_s,
            "reader_involuntary_switches_per_s": switches / window_s,
            "window_s": window_s,
        }
        driver = {f"driver_{name}": value for name, value in driver_counters(DEVICE).items()}
        return metrics | account_metrics(account) | driver

    @staticmethod
    def _wait_first(reader: KernelReader, idle_packets: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while reader.read().packets == idle_packets:
            if time.monotonic() > deadline:
                raise GuestError(f"no packet arrived within {START_TIMEOUT_S:g} s")
            time.sleep(0.002)
