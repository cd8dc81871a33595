# SPDX-License-Identifier: GPL-2.0-only
"""The topology around a row's device, and state that all rows share.

beyond           far                  here
b1 ------------- b0  up1 ------------ up0     nd9: a tun that the rows do not use
10.8.0.2  10.8.0.1   10.9.0.3    10.9.0.2
                     up1.5 .......... up0.5
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from guestlib.environment import Environment
from guestlib.freed import IPV4, IPV6, VLAN, freed
from guestlib.namespaces import inside, namespaces
from guestlib.netstats import parse_snmp
from guestlib.process import in_netns, ip_batch, netns_path, tool
from guestlib.timing import wait_until
from guestlib.tundev import IFF_TUN, TunDevice, configure

LOWER, BYSTANDER = "up0", "nd9"
VLAN_ID = 5
QUIET = """
cd /proc/sys/net
for conf in all default; do
    echo 1 >ipv6/conf/$conf/disable_ipv6
    echo 0 >ipv6/conf/$conf/dad_transmits
    echo 0 >ipv6/conf/$conf/router_solicitations
done
echo 1 >ipv4/ip_forward
echo 0 >ipv4/conf/all/send_redirects
# For zerocopy completions; before 6.9 one limit for all namespaces.
if [ -e core/optmem_max ]; then echo 33554432 >core/optmem_max; fi
"""


def mac_of(name: str, netns: str = "") -> bytes:
    """Return a device's hardware address."""
    path = f"/sys/class/net/{name}/address"
    if netns:
        text = tool(["ip", "netns", "exec", netns, "cat", path])
    else:
        text = Path(path).read_text(encoding="ascii")
    return bytes.fromhex(text.strip().replace(":", ""))


@dataclass(frozen=True)
class Lab:
    """State that all rows share.

    Attributes:
        freed: counts packets freed as dropped, except IPv6, which the kernel sends by itself.
        full: counts those dropped because a ring was full, with IPv6.
        backlogged: counts those dropped because a CPU's backlog was full.
        unmade: count the echo replies that the kernel could not create, here and in far.
        up1_mac: of the veth pair's far end.
    """

    environment: Environment
    freed: Callable[[], int]
    full: Callable[[], int]
    backlogged: Callable[[], int]
    unmade: tuple[Callable[[], int], Callable[[], int]]
    up1_mac: bytes


def unmade() -> int:
    """Return how many ICMP messages this namespace could not create."""
    return parse_snmp(Path("/proc/thread-self/net/snmp").read_text(), "Icmp")["OutErrors"]


def far_unmade() -> int:
    """Return the same for the namespace far."""
    with inside(netns_path("far")):
        return unmade()


@contextmanager
def laboratory() -> Iterator[Lab]:
    """Create the topology for the block."""
    with ExitStack() as stack:
        stack.enter_context(namespaces("far", "beyond", "away"))
        tool(["sh", "-c", QUIET])
        for netns in ("far", "beyond", "away"):
            tool(in_netns(netns, ["sh", "-c", QUIET]))
        ip_batch(
            [
                f"link add {LOWER} type veth peer name up1 netns far",
                f"link add link {LOWER} name {LOWER}.5 type vlan id {VLAN_ID}",
                f"address add 10.9.0.2/24 dev {LOWER}",
                f"link set {LOWER} up",
                f"link set {LOWER}.5 up",
            ]
        )
        stack.callback(ip_batch, [f"link delete {LOWER}"])
        up0, up1 = mac_of(LOWER), mac_of("up1", "far")
        ip_batch(
            [
                f"link add link up1 name up1.5 type vlan id {VLAN_ID}",
                "link add b0 type veth peer name b1 netns beyond",
                "address add 10.9.0.3/24 dev up1",
                "address add 10.8.0.1/24 dev b0",
                "link set up1 up",
                "link set up1.5 up",
                "link set b0 up",
                f"neigh replace 10.9.0.2 lladdr {up0.hex(':')} dev up1 nud permanent",
                "route add 198.18.0.0/24 via 10.9.0.2",
            ],
            netns="far",
        )
        ip_batch(
            ["link set b1 up", "address add 10.8.0.2/24 dev b1", "route add default via 10.8.0.1"],
            netns="beyond",
        )
        yield Lab(
            environment=Environment.from_environ(),
            freed=stack.enter_context(freed("", (IPV4, VLAN))),
            full=stack.enter_context(freed("FULL_RING", (IPV4, IPV6, VLAN))),
            backlogged=stack.enter_context(freed("CPU_BACKLOG", (IPV4, VLAN))),
            unmade=(unmade, far_unmade),
            up1_mac=up1,
        )


class Bystander:
    """A tun and a socket that the rows do not use; a context manager."""

    def __init__(self) -> None:
        self._device = TunDevice(BYSTANDER, IFF_TUN)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        self._device.__enter__()
        address = "198.18.9.1 peer 198.18.9.2/32"
        configure(BYSTANDER, txqueuelen=5, qdisc="fq_codel", address=address)
        os.set_blocking(self._device.fd, False)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._device.close()

    def delivers(self) -> bool:
        """Return whether a packet of its own arrives."""
        self._socket.sendto(b"bystander", ("198.18.9.2", 9))
        poll = select.poll()
        poll.register(self._device.fd, select.POLLIN)
        return wait_until(lambda: poll.poll(0)) and bool(os.read(self._device.fd, 2048))
