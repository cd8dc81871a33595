# SPDX-License-Identifier: GPL-2.0-only
"""Floods a TAP with pktgen; a kernel thread or a program reads it.

::

    kpktgend_0 (CPU 0) --+
                         +--> qdisc --> TAP ring (txqueuelen) --> reader (CPU 1)
    kpktgend_1 (CPU 1) --+

Through the qdisc the senders never wait, and the qdisc drops what exceeds its limit. Bypassing it
(``direct``) they wait while the queue is stopped, like a qdisc.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.guest.scenarios.flood import DEVICE, Counting, Flood
from bench.guest.ureader import UserReader, command
from guestlib.drivers import device_flags
from guestlib.failure import GuestError
from guestlib.kreader import KernelReader
from guestlib.process import Service
from guestlib.tundev import IFF_TAP, TunDevice
from lab.variant import Variant


class Tap(Flood):
    """The driver's own cost, and its drops."""

    parameters = Flood.parameters | {"reader", "reader_cpu", "reader_fifo", "work_ns"}
    reader = "reader"

    def read(self, variant: Variant, stack: ExitStack) -> tuple[Counting, Counting]:
        """Read with a kernel thread or a program."""
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
