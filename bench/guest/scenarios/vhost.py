# SPDX-License-Identifier: GPL-2.0-only
"""Floods a TAP with pktgen; vhost-net reads it for a client in place of a virtual machine.

::

    kpktgend_0 (CPU 0) --+
                         +--> TAP ring (txqueuelen) --> vhost thread --> vhost_client
    kpktgend_1 (CPU 1) --+

The senders wait while the queue is stopped, like a qdisc, or pass packets to the qdisc, as in the
scenario tap. The client only returns buffers.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest.scenarios.flood import DEVICE, Counting, Flood
from guestlib.drivers import device_flags
from guestlib.tundev import IFF_TAP, TunDevice
from guestlib.vhost_client import VhostClient
from lab.variant import Variant


class Vhost(Flood):
    """Packets delivered by vhost-net, and drops on the way to it."""

    parameters = Flood.parameters | {
        *("slots", "work_ns", "worker_cpu", "worker_fifo", "client_cpu", "client_fifo"),
    }
    uses_vhost = True
    reader = "worker"

    def read(self, variant: Variant, stack: ExitStack) -> tuple[Counting, Counting]:
        """Read with vhost-net."""
        tap = stack.enter_context(TunDevice(DEVICE, IFF_TAP | device_flags(variant)))
        self.set_up()
        # The client's CPU is a number or ``worker``: the CPU of vhost's thread.
        follows = self.text("client_cpu") == "worker"
        client = VhostClient(
            self.environment,
            tap.fd,
            slots=self.number("slots"),
            work_ns=self.number("work_ns"),
            cpu=self.number("worker_cpu" if follows else "client_cpu"),
            fifo=self.flag("client_fifo"),
            worker_cpu=self.number("worker_cpu"),
            worker_fifo=self.flag("worker_fifo"),
        )
        stack.enter_context(client)
        return client.counts, client.end
