# SPDX-License-Identifier: GPL-2.0-only
"""pktgen into a TAP that vhost-net reads for a virtual machine, or its stand-in.

::

    kpktgend_0 (CPU 0) --+
                         +--> TAP ring (txqueuelen) --> vhost thread --> vhost_client
    kpktgend_1 (CPU 1) --+

The senders wait while the driver has stopped its queue, as a qdisc would, or they go
through the qdisc, as in the scenario tap. The client only gives buffers back.
"""

from __future__ import annotations

import time

from nodrop.guest.counters import driver_counters
from nodrop.guest.drivers import device_flags
from nodrop.guest.pktgen import Pktgen
from nodrop.guest.plan import Variant
from nodrop.guest.scenarios.base import Metrics, Scenario, drain, driver_metrics
from nodrop.guest.scenarios.flood import flood_metrics
from nodrop.guest.tundev import IFF_TAP, TunDevice, configure
from nodrop.guest.vhost import VhostClient

DEVICE = "ndvhost0"
SETTLE_S = 0.03
"""From the last sender's start to the measured window: queues fill, caches warm."""


class Vhost(Scenario):
    """What vhost-net delivers, and what is lost in front of it."""

    parameters = frozenset(
        {
            "senders",
            "txqueuelen",
            "qdisc",
            "packet_bytes",
            "direct",
            "slots",
            "worker_cpu",
            "worker_fifo",
            "client_cpu",
            "client_fifo",
            "work_ns",
        }
    )
    uses_vhost = True

    def run(self, variant: Variant, seconds: float) -> Metrics:
        """Send for the window, let the queue drain, account for every packet."""
        pktgen = Pktgen(
            DEVICE,
            senders=self.number("senders"),
            packet_bytes=self.number("packet_bytes"),
            direct=self.flag("direct"),
        )
        with TunDevice(DEVICE, IFF_TAP | device_flags(variant)) as tap:
            configure(DEVICE, txqueuelen=self.number("txqueuelen"), qdisc=self.text("qdisc"))
            client = VhostClient(
                self.environment,
                tap.fd,
                slots=self.number("slots"),
                work_ns=self.number("work_ns"),
                cpu=self._client_cpu(),
                fifo=self.flag("client_fifo"),
                worker_cpu=self.number("worker_cpu"),
                worker_fifo=self.flag("worker_fifo"),
            )
            with client, pktgen:
                return self._measure(variant, pktgen, client, seconds)

    def _client_cpu(self) -> int:
        """Return the client's CPU, a number or ``worker``: where vhost's thread is."""
        follows = self.text("client_cpu") == "worker"
        return self.number("worker_cpu" if follows else "client_cpu")

    def _measure(
        self, variant: Variant, pktgen: Pktgen, client: VhostClient, seconds: float
    ) -> Metrics:
        with pktgen.sending():
            time.sleep(SETTLE_S)
            first = client.counts()
            time.sleep(seconds)
            last = client.counts()
        sent = pktgen.results()
        offered = sum(sender.offered for sender in sent)
        with pktgen.removing():
            counts = drain(DEVICE, offered)
            driver = driver_counters(DEVICE) if variant is Variant.NODROP else {}
        end = client.end()
        metrics = flood_metrics("worker", sent, (first, last), end.packets, counts)
        return metrics | driver_metrics(driver)
