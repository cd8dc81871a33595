# SPDX-License-Identifier: GPL-2.0-only
"""Two network namespaces, joined by a TUN or TAP device in each and the in-kernel forwarder.

::

    netns nda                                                     netns ndb
    198.18.0.1 --> qdisc --> ndvpn-a --> [forwarder] --> ndvpn-b --> 198.18.0.2
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench.guest.scenarios.base import DRAIN_TIMEOUT_S, DeviceCounts
from lab.guest.kreader import KernelReader
from lab.guest.netns import namespaces
from lab.guest.process import ip_batch, netns_path
from lab.guest.tundev import TSO_OFFLOADS, TunDevice, configure

NETNS = ("nda", "ndb")
DEVICES = ("ndvpn-a", "ndvpn-b")
ADDRESSES = ("198.18.0.1", "198.18.0.2")


def set_up_ends(*, txqueuelen: int, qdisc: str) -> None:
    """Give both devices, each in its namespace already, ring, qdisc and address."""
    for netns, device, index in zip(NETNS, DEVICES, (0, 1), strict=True):
        # Without an address of IPv6 the kernel sends nothing by itself.
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
    """Join the two namespaces for the block; gives the forwarder of the first's packets.

    Args:
        flags: IFF_TUN or IFF_TAP and others.
        offloads: large packets pass whole.
        cpu: CPU of the forwarder, -1 for any.
        back_cpu: CPU of one that carries the other way, -1: the same does.
        work_ns: its busy time per packet, ns.
        txqueuelen: slots of each ring.
        qdisc: of each device.
    """
    with ExitStack() as stack:
        stack.enter_context(namespaces(*NETNS))
        taken = TSO_OFFLOADS if offloads else 0
        ends = [stack.enter_context(TunDevice(name, flags, offloads=taken)) for name in DEVICES]
        there, back = ends[0].fd, ends[1].fd
        one_way = back_cpu >= 0
        forwarder = KernelReader(there, back, cpu=cpu, work_ns=work_ns, one_way=one_way)
        stack.enter_context(forwarder)
        if one_way:
            stack.enter_context(
                KernelReader(back, there, cpu=back_cpu, work_ns=work_ns, one_way=True)
            )
        ip_batch(
            [
                f"link set dev {name} netns {netns}"
                for name, netns in zip(DEVICES, NETNS, strict=True)
            ]
        )
        set_up_ends(txqueuelen=txqueuelen, qdisc=qdisc)
        yield forwarder


def rest(carried: Callable[[], int]) -> list[DeviceCounts]:
    """Wait until nothing moves any more and return both devices' counters.

    A qdisc counts the segments of a large packet, a device counts the packet, so that their
    counters do not tell. What does: no qdisc holds a packet, and neither what carries packets nor
    the devices went on between two looks, which take some milliseconds.

    Args:
        carried: returns how many packets were carried so far.
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
    """Return the options that tell a traffic program the two namespaces and the far address."""
    client, server = (str(netns_path(netns)) for netns in NETNS)
    return ["--netns-client", client, "--netns-server", server, "--address", ADDRESSES[1]]
