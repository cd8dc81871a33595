#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""vhost-net detaches and attaches again, or one of tun and vhost_net is the stock one."""

from __future__ import annotations

from collections.abc import Callable

from devices import NAME, counters, dropped, mq, tun, until_stopped
from harness import Skip, check, drivers, each, equal, run, soon
from traffic import SLOW_NS, Sender, all_finish, client, flood, start_senders, taken_and_put_back

from guestlib.drivers import IFF_BACKPRESSURE
from guestlib.netstats import link_counters
from guestlib.process import ip_batch
from guestlib.tracing import freed
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_TAP, TunDevice, attach_queue, known_flags
from guestlib.vhost_client import VhostClient
from lab.variant import Variant

SLOTS = 16
"""Few buffers of a client: when they are used up, vhost-net keeps packets that it has taken."""


def case_what_was_taken_comes_back_in_order() -> None:
    with tun(100, flags=IFF_TAP) as device, client(device, slots=SLOTS) as reader:
        taken_and_put_back(device, reader, SLOTS, until_stopped)


def case_detached_queue_is_closed() -> None:
    """Packets that vhost-net puts back are counted as drops when the file is closed."""
    flags = IFF_TAP | IFF_MULTI_QUEUE
    with tun(100, flags=flags), TunDevice(NAME, flags) as other:
        mq(2)
        with client(other, slots=SLOTS) as reader:
            reader.order("pause")
            senders = start_senders(32, 5)
            soon(lambda: link_counters(NAME).tx_packets == SLOTS, "the guest got nothing")
            all_finish(senders)
            attach_queue(other.fd, False)
            reader.detach()
        before = dropped()
        with freed() as lost:
            other.close()
            soon(lambda: lost() > 0, "vhost-net put no packet back")
            equal(dropped() - before, lost(), "packets counted as drops")


def without_device(then: Callable[[VhostClient], object]) -> None:
    """Delete a device whose client has no buffers; its blocked sender must get an error."""
    with tun(5, flags=IFF_TAP) as device, client(device, slots=SLOTS) as reader:
        reader.order("pause")
        sender = Sender(1000, patient=True)
        until_stopped()
        soon(lambda: link_counters(NAME).tx_packets > 0, "the guest got nothing")
        ip_batch([f"link delete {NAME}"])
        then(reader)
        soon(lambda: sender.errors > 0, lambda: f"blocked for good after {sender.sent} packets")
        check(sender.stop(), "the sender hangs")
        reader.end()


def case_device_goes_first() -> None:
    """Packets that vhost-net puts back have no device any more; closing the file frees them."""
    without_device(VhostClient.detach)


def case_device_goes_under_vhost() -> None:
    without_device(lambda reader: reader.order("resume"))


def flows(reader: VhostClient) -> None:
    """Fail unless 1000 more packets arrive."""
    for _ in range(20):
        seen = reader.packets
        soon(lambda mark=seen: reader.packets > mark + 50, "traffic stalls")


@each(100, 5, 1)
def case_stock_vhost_gets_a_dropping_ring(ring: int) -> None:
    drivers.use(Variant.NODROP, vhost=Variant.STOCK)
    with tun(ring, flags=IFF_TAP) as device, client(device, work_ns=SLOW_NS) as reader:
        with flood(2, direct=False):
            flows(reader)
            soon(lambda: dropped() > 0, "no packet was dropped")
        equal(counters()["stops"], 0, "stops")
        # The qdisc's last packets may still be on their way.
        soon(lambda: counters()["drop_foreign"] == dropped(), "drops of another cause")


def case_stock_vhost_wakes_a_stopped_queue() -> None:
    drivers.use(Variant.NODROP, vhost=Variant.STOCK)
    with tun(5, flags=IFF_TAP) as device:
        sender = Sender(50)
        soon(lambda: counters()["stops"] == 1, "the txq was not stopped")
        with client(device) as reader:
            check(sender.finished(5), "nothing wakes the sender before the guard does")
            soon(lambda: reader.packets >= 5, "the ring's packets do not arrive")


@each(100, 5, 1)
def case_stock_tun(ring: int) -> None:
    drivers.use(Variant.STOCK, vhost=Variant.NODROP)
    with (
        tun(ring, flags=IFF_TAP) as device,
        client(device, work_ns=SLOW_NS) as reader,
        flood(2, direct=False),
    ):
        flows(reader)
        reader.detach()
        reader.attach()
        flows(reader)
        soon(lambda: dropped() > 0, "no drops: this is not the stock driver")


def case_stock_tun_with_its_own_flag() -> None:
    """nodrop's vhost_net wakes upstream's txq as the stock one does."""
    drivers.use(Variant.STOCK, vhost=Variant.NODROP)
    if not known_flags() & IFF_BACKPRESSURE:
        raise Skip("this kernel's tun has no flow control")
    flags = IFF_TAP | IFF_BACKPRESSURE
    with tun(5, flags=flags) as device, client(device, work_ns=SLOW_NS) as reader:
        sender = Sender(500)
        check(sender.finished(20), "the sender hangs")
        soon(lambda: reader.packets == 500, "packets are missing")
        equal(dropped(), 0, "packets dropped")


run(vhost=Variant.NODROP)
