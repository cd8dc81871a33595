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

from contextlib import ExitStack

from bench.guest.scenarios.flood import DEVICE, Counting, Flood
from bench.guest.ureader import UserReader, command
from lab.guest.drivers import device_flags
from lab.guest.failure import GuestError
from lab.guest.kreader import KernelReader
from lab.guest.process import Service
from lab.guest.tundev import IFF_TAP, TunDevice
from lab.guest.variant import Variant


class Tap(Flood):
    """The driver's own cost, and what it loses."""

    parameters = Flood.parameters | {"reader", "reader_cpu", "reader_fifo", "work_ns"}
    reader = "reader"

    def read(self, variant: Variant, stack: ExitStack) -> tuple[Counting, Counting]:
        """Read in the kernel or by a program."""
        cpu, work_ns = self.number("reader_cpu"), self.number("work_ns")
        fifo, kind = self.flag("reader_fifo"), self.text("reader")
        reader: KernelReader | UserReader
        tap = stack.enter_context(TunDevice(DEVICE, IFF_TAP | device_flags(variant)))
        if kind == "kernel":
            reader = stack.enter_context(KernelReader(tap.fd, cpu=cpu, work_ns=work_ns, fifo=fifo))
        elif kind == "user":
            program = self.environment.bin / "tun_reader"
            words = command(program, tap.fd, cpu=cpu, work_ns=work_ns, fifo=fifo)
            reader = UserReader(stack.enter_context(Service(words, pass_fds=[tap.fd])), DEVICE)
        else:
            raise GuestError(f"a reader is kernel or user, not '{kind}'")
        self.set_up()
        return reader.read, reader.read
