# SPDX-License-Identifier: GPL-2.0-only
"""Two network namespaces with a TUN or TAP device each, joined by the in-kernel forwarder.

::

    netns nda                                                     netns ndb
    198.18.0.1 --> qdisc --> ndvpn-a --> [forwarder] --> ndvpn-b --> 198.18.0.2
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.guest.scenarios.base import DRAIN_TIMEOUT_S, DeviceCounts
from guestlib.kreader import KernelReader
from guestlib.namespaces import namespaces
from guestlib.process import ip_batch, netns_path
from guestlib.tundev import TSO_OFFLOADS, TunDevice, configure

NETNS = ("nda", "ndb")
DEVICES = ("ndvpn-a", "ndvpn-b")
ADDRESSES = ("198.18.0.1", "198.18.0.2")


def set_up_ends(*, txqueuelen: int, qdisc: str) -> None:
    """Set ring, qdisc and address of both devices, which must be in their namespaces."""
    for netns, device, index in zip(NETNS, DEVICES, (0, 1), strict=True):
        # Without an IPv6 address the kernel sends no packets of its own.
        ip_batch([f"link set dev {device} addrgenmode none"], netns=netns)
        configure(
            device,
            txqueuelen=txqueuelen,
            qdisc=qdisc,
            address=f"{ADDRESSES[index]} peer {ADDRESSES[1 - index]}/32",
            netns=netns,
        )


@contextmanager
def kernel_vpn(
    flags: int,
    *,
    offloads: bool,
    cpu: int,
    back_cpu: int,
    work_ns: int,
    txqueuelen: int,
    qdisc: str,
) -> Iterator[KernelReader]:
    """Join the two namespaces for the block; yield the forwarder from the first to the second.

    Args:
        flags: IFF_TUN or IFF_TAP and others.
        offloads: forward large packets unsegmented.
        cpu: CPU of the forwarder, -1: any.
        back_cpu: CPU of another forwarder for the reverse direction; -1: one forwards both.
        work_ns: a forwarder's busy time per packet, ns.
        txqueuelen: slots of each ring.
        qdisc: of each device.
    """
    with ExitStack() as stack:
        stack.enter_context(namespaces(*NETNS))
        taken = TSO_OFFLOADS if offloads else 0
        ends = [stack.enter_context(TunDevice(name, flags, offloads=taken)) for name in DEVICES]
        first_fd, second_fd = ends[0].fd, ends[1].fd
        one_way = back_cpu >= 0
        forwarder = KernelReader(first_fd, second_fd, cpu=cpu, work_ns=work_ns, one_way=one_way)
        stack.enter_context(forwarder)
        if one_way:
            stack.enter_context(
                KernelReader(second_fd, first_fd, cpu=back_cpu, work_ns=work_ns, one_way=True)
            )
        ip_batch(
            [
                f"link set dev {name} netns {netns}"
                for name, netns in zip(DEVICES, NETNS, strict=True)
            ]
        )
        set_up_ends(txqueuelen=txqueuelen, qdisc=qdisc)
        yield forwarder


def wait_until_idle(carried: Callable[[], int]) -> list[DeviceCounts]:
    """Wait until no packet moves any more; return both devices' counters.

    A qdisc counts a large packet's segments, but a device counts the packet, so their counters
    cannot be compared. Instead, no qdisc may hold a packet, and neither the forwarder's nor the
    devices' counts may change between two samples, which take some milliseconds.

    Args:
        carried: returns how many packets have been forwarded so far.
    """
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    before: list[int] = []
    while True:
        counts = [DeviceCounts.of(name, netns) for name, netns in zip(DEVICES, NETNS, strict=True)]
        now = [carried(), *(count.link.tx_packets for count in counts)]
        still = now == before and not any(count.qdisc.queued for count in counts)
        if still or time.monotonic() > deadline:
            return counts
        before = now


def netns_options() -> list[str]:
    """Return a traffic program's options for the two namespaces and the remote address."""
    client, server = (str(netns_path(netns)) for netns in NETNS)
    return ["--netns-client", client, "--netns-server", server, "--address", ADDRESSES[1]]
