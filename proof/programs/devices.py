# SPDX-License-Identifier: GPL-2.0-only
"""The device under test: made for a block, beside other links, and what it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from harness import Skip, soon

from guestlib.environment import GuestError
from guestlib.netstats import driver_counters, link_counters, qdisc_counters, sum_of_queues
from guestlib.process import ip_batch, tool
from guestlib.tundev import IFF_TAP, IFF_TUN, MULTI_TUN, TunDevice, configure
from nodrop.host import ethtool
from nodrop.host.counters import by_queue

NAME = "ndtest0"
HERE, THERE = "198.18.0.1", "198.18.0.2"
DEEP = "pfifo limit 20000"
"""A qdisc that never drops in a test; fq_codel's AQM would."""


@contextmanager
def tun(ring: int, *, flags: int = IFF_TUN, qdisc: str = DEEP) -> Iterator[TunDevice]:
    """Create a TUN or TAP device for the block: up, with an address and a route to THERE."""
    with TunDevice(NAME, flags) as device:
        configure(NAME, txqueuelen=ring, qdisc=qdisc, address=f"{HERE} peer {THERE}/32")
        if flags & IFF_TAP:
            ip_batch([f"neigh replace {THERE} lladdr 02:00:00:00:00:02 dev {NAME}"])
        yield device


@contextmanager
def backpressure_off() -> Iterator[None]:
    """Fill rings up to txqueuelen in the block, whatever their limit."""
    ethtool.set_private_flag(NAME, "nodrop", False)
    try:
        yield
    finally:
        ethtool.set_private_flag(NAME, "nodrop", True)


def counters(queue: int = 0, *, device: str = NAME) -> dict[str, int]:
    """Return the driver's counters of one queue."""
    return by_queue(driver_counters(device)).get(queue, {})


def dropped() -> int:
    return link_counters(NAME).tx_dropped


def until_stopped() -> None:
    """Fail the case unless the first txq is stopped at least once."""
    soon(lambda: counters()["stops"] > 0, "the txq was not stopped")


@contextmanager
def bridge(*ports: str, behind: Mapping[str, str]) -> Iterator[None]:
    """Create a bridge for the block; ``behind`` are MAC addresses by the port that leads there."""
    try:
        ip_batch(["link add ndbridge type bridge mcast_snooping 0", "link set dev ndbridge up"])
    except GuestError as error:
        raise Skip(f"no bridge here: {error}") from None
    try:
        ip_batch([f"link set dev {port} master ndbridge up" for port in ports])
        known = [f"fdb replace {behind[p]} dev {p} master static" for p in ports if p in behind]
        tool(["bridge", "-batch", "-"], text="\n".join(known) + "\n")
        soon(
            lambda: tool(["bridge", "link"]).count("state forwarding") == len(ports),
            "the bridge does not forward",
        )
        yield
    finally:
        ip_batch(["link delete dev ndbridge"])


@contextmanager
def veth(up: str) -> Iterator[None]:
    """Create a veth pair, ndveth0 and ndveth1, one of which is up."""
    ip_batch(["link add ndveth0 type veth peer name ndveth1", f"link set dev {up} up"])
    try:
        yield
    finally:
        ip_batch(["link delete dev ndveth0"])


@contextmanager
def multi_queue(count: int, ring: int = 500, **options: Any) -> Iterator[list[TunDevice]]:
    """Create a TUN device with several queues for the block; options as for tun()."""
    with ExitStack() as stack:
        devices = [stack.enter_context(tun(ring, flags=MULTI_TUN, **options))]
        devices += [stack.enter_context(TunDevice(NAME, MULTI_TUN)) for _ in range(count - 1)]
        yield devices


def resize(ring: int) -> None:
    ip_batch([f"link set dev {NAME} txqueuelen {ring}"])


def mq(queues: int) -> None:
    """Give the device the qdisc mq, with a pfifo for each queue."""
    tool(["tc", "qdisc", "replace", "dev", NAME, "root", "handle", "1:", "mq"])
    for number in range(1, queues + 1):
        parent = f"1:{number:x}"
        tool(["tc", "qdisc", "replace", "dev", NAME, "parent", parent, *DEEP.split()])


def in_rings() -> int:
    """Return the packets in all rings of the device."""
    return sum_of_queues(NAME).get("ring", 0)


def drops() -> dict[str, int]:
    """Return the driver's nonzero drop counters, summed over the queues."""
    found = sum_of_queues(NAME).items()
    return {cause: value for cause, value in found if value and cause.startswith("drop_")}


def all_drops(since: dict[str, int] | None = None) -> dict[str, int]:
    """Return the device's counted drops by cause, without zeros.

    The driver's causes have their names. "stack" is the rest of the device's drops: noop_qdisc
    while the core replaces the qdisc, or a filter. "qdisc" is the qdisc's own drops.

    Args:
        since: an earlier result, which is subtracted.
    """
    found = drops()
    found["stack"] = dropped() - sum(found.values())
    found["qdisc"] = qdisc_counters(NAME).drops
    for cause, count in (since or {}).items():
        found[cause] = found.get(cause, 0) - count
    return {cause: count for cause, count in found.items() if count}
