# SPDX-License-Identifier: GPL-2.0-only
"""The devices of a row, and what may happen to them.

beyond           far                  here
b1 ------------- b0  up1 ------------ up0     nd9: a tun that the rows do not use
10.8.0.2  10.8.0.1   10.9.0.3    10.9.0.2
                     up1.5 .......... up0.5

The device under test is nd0. A tun or tap has the address HERE, and a route to THERE. A macvtap or
ipvtap is above up0 and has the address ABOVE.

A row's neighbour is a bridge (with HERE and the port nd0, or below a macvtap), a VLAN (above nd0,
or below a macvtap), or a second queue of nd0 with a slow reader.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from guestlib.environment import NO_IPV6, Environment, GuestError, set_sysctls, wait_until
from guestlib.namespaces import inside, namespaces
from guestlib.netlink import DONE, DUMP, ERROR, REQUEST, attributes, message, messages, raise_for
from guestlib.netstats import dropped, mac_of, parse_snmp, sum_of_queues
from guestlib.process import ip_batch, tool
from guestlib.taps import LOWER, veth_beyond, veth_to_far
from guestlib.tracing import IPV4, IPV6, VLAN, freed
from guestlib.tundev import (
    IFF_MULTI_QUEUE,
    IFF_NO_PI,
    IFF_TAP,
    IFF_TUN,
    TUNSETIFF,
    TunDevice,
    configure,
)
from proof.sweep.rows import Row

BYSTANDER = "nd9"
VLAN_ID = 5
QUIET = NO_IPV6 | {
    **{
        f"net/ipv6/conf/{conf}/{name}": "0"
        for conf in ("all", "default")
        for name in ("dad_transmits", "router_solicitations")
    },
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/send_redirects": "0",
    # No errors: the kernel's own packets would be counted among the drops.
    "net/ipv4/icmp_msgs_burst": "0",
    "net/ipv4/icmp_msgs_per_sec": "0",
    # For zerocopy completions; before 6.9 one limit for all namespaces.
    "net/core/optmem_max": "33554432",
}
"""Sysctls of each namespace."""


@dataclass(frozen=True)
class Lab:
    """State that all rows share.

    Attributes:
        freed: counts packets freed as dropped, except IPv6, which the kernel sends by itself.
        full: counts those dropped because a ring was full, with IPv6.
        backlogged: counts those dropped because a CPU's backlog was full.
        unmade: count the echo replies that the kernel could not create, here and in far.
        up1_mac: of the veth pair's far end.
        flags: to open the device under test with, by which an application requests flow control.
    """

    environment: Environment
    freed: Callable[[], int]
    full: Callable[[], int]
    backlogged: Callable[[], int]
    unmade: tuple[Callable[[], int], Callable[[], int]]
    up1_mac: bytes
    flags: int


def unmade() -> int:
    """Return how many ICMP messages this namespace could not create."""
    return parse_snmp(Path("/proc/thread-self/net/snmp").read_text(), "Icmp")["OutErrors"]


def far_unmade() -> int:
    """Return the same for the namespace far."""
    with inside("far"):
        return unmade()


@contextmanager
def laboratory(flags: int = 0) -> Iterator[Lab]:
    """Create the topology for the block; flags: as of Lab."""
    with ExitStack() as stack:
        stack.enter_context(namespaces("far", "beyond", "away"))
        for netns in ("", "far", "beyond", "away"):
            with inside(netns):
                set_sysctls(QUIET)
        stack.enter_context(veth_to_far())
        veth_beyond()
        ip_batch(
            [
                f"link add link {LOWER} name {LOWER}.5 type vlan id {VLAN_ID}",
                f"address add 10.9.0.2/24 dev {LOWER}",
                f"link set {LOWER}.5 up",
                # A macvtap without queues passes its packets to the stack. There they would wait
                # for ARP, and be dropped when a later row counts.
                f"route replace blackhole {ABOVE}",
            ]
        )
        up0, up1 = mac_of(LOWER), mac_of("up1", "far")
        ip_batch(
            [
                f"link add link up1 name up1.5 type vlan id {VLAN_ID}",
                "link set up1.5 up",
                f"neigh replace 10.9.0.2 lladdr {up0.hex(':')} dev up1 nud permanent",
                "route add 198.18.0.0/24 via 10.9.0.2",
            ],
            netns="far",
        )
        yield Lab(
            environment=Environment.from_environ(),
            freed=stack.enter_context(freed("", (IPV4, VLAN))),
            full=stack.enter_context(freed("FULL_RING", (IPV4, IPV6, VLAN))),
            backlogged=stack.enter_context(freed("CPU_BACKLOG", (IPV4, VLAN))),
            unmade=(unmade, far_unmade),
            up1_mac=up1,
            flags=flags,
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


_GETQDISC, _ROOT = 38, 0xFFFFFFFF
_TC = struct.Struct("=BxxxiIII")
_STATS2, _STATS_QUEUE = 7, 3
_CLASS = "htb rate 8gbit burst 1mb quantum 100000"
"""A rate that never delays packets."""
_LEAF = "pfifo limit 1000"
"""The default leaf of htb has the limit txqueuelen, which may be 0."""
_WORDS = {
    "tbf": "tbf rate 16mbit burst 20000 limit 100000000",
    "netem": "netem delay 1ms limit 100000",
    "htb": "htb default 1 direct_qlen 1000",
}
"""Arguments of tc; other qdiscs have none."""
_handles = itertools.count(1)


def replace_qdisc(device: str, kind: str) -> None:
    """Replace a device's root qdisc, also by a new one of the same kind.

    Args:
        kind: as for ``tc``; htb gets one class.
    """
    # Without a new handle the kernel would only change the existing qdisc.
    handle = f"{1 + next(_handles) % 0x7000:x}:"
    own = "" if kind == "noqueue" else f"handle {handle}"
    lines = [f"qdisc replace dev {device} root {own} {_WORDS.get(kind, kind)}"]
    if kind == "htb":
        lines += [
            f"class replace dev {device} parent {handle} classid {handle}1 {_CLASS}",
            f"qdisc replace dev {device} parent {handle}1 {_LEAF}",
        ]
    tool(["tc", "-batch", "-"], text="\n".join(lines) + "\n")


def sample_qdisc(device: str) -> tuple[int, int]:
    """Return the packets queued in a device's qdiscs, and the qdiscs' drops."""
    index = socket.if_nametoindex(device)
    waiting = drops = 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as sock:
        sock.send(message(_GETQDISC, REQUEST | DUMP, 1, _TC.pack(0, index, 0, 0, 0)))
        while True:
            for what, _, content in messages(sock.recv(1 << 17)):
                if what == ERROR:
                    raise_for(content)
                if what == DONE:
                    return waiting, drops
                _, found, _, parent, _ = _TC.unpack_from(content)
                if found != index or parent != _ROOT:
                    continue
                stats = dict(attributes(dict(attributes(content[_TC.size :]))[_STATS2]))
                length, _, dropped = struct.unpack_from("=3I", stats[_STATS_QUEUE])
                waiting, drops = waiting + length, drops + dropped


NAME = "nd0"
DEVICE = Path("/sys/class/net", NAME)
HERE, THERE = "198.18.0.1", "198.18.0.2"
ABOVE, FAR = "10.9.0.1", "10.9.0.3"
GUEST_MAC = bytes.fromhex("020000000002")
_TYPE = {
    "macvtap": "macvtap mode bridge",
    "ipvtap": "ipvtap mode l2",
    "vlan": f"vlan id {VLAN_ID}",
    # With snooping the bridge would send packets of its own.
    "bridge": "bridge mcast_snooping 0",
}


class Dut:
    """The device under test of a row; a context manager.

    Attributes:
        fds: an open file for each of its queues.
        top: the device above it, which has its address; itself: there is none.
        out: the device through which senders reach it.
        netns: the senders' namespace; "": this one.
        address: the destination address.
        mac: the destination's hardware address.
        peer, peer_mac: addresses of the other end.
        full_before: drops at a full ring, of all devices, before this one existed. From its first
            moment the kernel may send it multicast packets, and its own counters count those.
    """

    def __init__(self, row: Row, lab: Lab) -> None:
        self.row, self.lab = row, lab
        self.full_before = lab.full()
        self.fds: list[int] = []
        self.top = self.out = NAME
        self.netns = ""
        self.address, self.mac = THERE, GUEST_MAC
        self.peer, self.peer_mac = HERE, b""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        # io_uring releases a killed reader's files in the background.
        if not wait_until(lambda: not DEVICE.exists()):
            raise GuestError(f"{NAME} is not deleted")

    def _make(self) -> None:
        if self.row.above:
            self._make_above()
        else:
            self._make_tun()
        if self.row.sender == "multicast" and self.row.above:
            self._speak_ipv6()

    def _queues(self) -> int:
        return 2 if self.row.neighbour == "slow" else 1

    def _several(self) -> bool:
        row = self.row
        return row.event == "reattach" or row.neighbour == "slow" or row.qdisc == "mq"

    def _make_tun(self) -> None:
        row = self.row
        flags = self.lab.flags | (IFF_TAP if row.kind == "tap" else IFF_TUN)
        for _ in range(self._queues()):
            device = TunDevice(NAME, flags | (IFF_MULTI_QUEUE if self._several() else 0))
            self.fds.append(self._stack.enter_context(device).fd)
        self.resize(row.slots)
        self.set_qdisc(row.qdisc)
        if row.neighbour == "bridge":
            self.top = self.out = "br0"
            self._link("br0", "bridge")
            ip_batch([f"link set dev {NAME} master br0"])
            if row.sender == "bridged":
                self._enslave()
                self.out, self.netns = "up1", "far"
        elif row.neighbour == "vlan":
            self.top = self.out = f"{NAME}.5"
            self._link(self.out, "vlan", NAME)
        self.address_it()

    def address_it(self) -> None:
        """Give the device, or the one above it, its address, and bring both up."""
        self.up(f"address replace {HERE} peer {THERE} dev {self.top}")

    def up(self, *lines: str) -> None:
        """Run lines of ip, restore the neighbour entry deleted by a link-down, and bring it up."""
        if self.row.kind == "tap":
            # Without the entry a packet would wait for ARP, and others overtake it.
            mac = GUEST_MAC.hex(":")
            lines += (f"neigh replace {THERE} lladdr {mac} dev {self.top} nud permanent",)
            self.peer_mac = mac_of("br0" if self.row.neighbour == "bridge" else NAME)
        ip_batch([*lines, f"link set dev {NAME} up", f"link set dev {self.top} up"])
        if self.row.sender == "multicast" and not self.row.above:
            self._speak_ipv6()

    def _link(self, name: str, kind: str, lower: str = "", words: str = "") -> None:
        below = f"link {lower}" if lower else ""
        ip_batch([f"link add {below} name {name} {words} type {_TYPE[kind]}"])
        self._stack.callback(self._delete, name)

    def _delete(self, name: str) -> None:
        # It may have been deleted with the device below it.
        with suppress(GuestError):
            ip_batch([f"link delete dev {name}"])

    def _enslave(self) -> None:
        ip_batch([f"link set dev {LOWER} master br0"])
        self._stack.callback(ip_batch, [f"link set dev {LOWER} nomaster"])

    def _make_above(self) -> None:
        row, lower = self.row, LOWER
        self.out, self.netns = "up1", "far"
        self.address, self.peer, self.peer_mac = ABOVE, FAR, self.lab.up1_mac
        if row.neighbour == "bridge":
            self._link("br0", "bridge")
            self._enslave()
            ip_batch(["link set dev br0 up"])
            lower = "br0"
        elif row.neighbour == "vlan":
            lower = f"{LOWER}.5"
            self.out = "up1.5"
        mac = f"address {GUEST_MAC.hex(':')}" if row.kind == "macvtap" else ""
        self._link(NAME, row.kind, lower, f"txqueuelen {row.slots} {mac}")
        self.mac = mac_of(NAME)
        index = socket.if_nametoindex(NAME)
        for _ in range(self._queues()):
            fd = os.open(f"/dev/tap{index}", os.O_RDWR | os.O_CLOEXEC)
            self._stack.callback(os.close, fd)
            request = struct.pack("16sH22x", b"", IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE)
            fcntl.ioctl(fd, TUNSETIFF, request)
            self.fds.append(fd)
        # An ipvtap receives by address.
        own = [f"address add {ABOVE}/32 dev {NAME}"] if row.kind == "ipvtap" else []
        ip_batch([*own, f"link set dev {NAME} up"])
        far = f"neigh replace {ABOVE} lladdr {self.mac.hex(':')} dev {self.out} nud permanent"
        lines = [far]
        if self.out != "up1":
            lines += [f"route replace {ABOVE}/32 dev {self.out} src {FAR}"]
            self._stack.callback(ip_batch, [f"route delete {ABOVE}/32"], netns="far")
        ip_batch(lines, netns="far")
        if row.sender == "forwarded":
            self.netns = "beyond"

    def _speak_ipv6(self) -> None:
        """Enable IPv6 for multicast senders; it is off by default, so that the kernel is quiet."""
        knob = Path(f"/proc/sys/net/ipv6/conf/{self.out}/disable_ipv6")

        def switch(value: str) -> None:
            with suppress(FileNotFoundError), inside(self.netns):
                knob.write_text(value)

        switch("0")
        if self.netns:
            self._stack.callback(switch, "1")
        if self.row.above:
            ip_batch([f"link set dev {NAME} allmulticast on"])

    def set_qdisc(self, kind: str) -> None:
        if not self.row.above:
            replace_qdisc(NAME, kind)

    def resize(self, slots: int) -> None:
        (DEVICE / "tx_queue_len").write_text(str(slots))

    def counters(self) -> dict[str, int]:
        return sum_of_queues(NAME)

    def dropped(self) -> int:
        """Return the device's counter of drops on the way to its reader."""
        return dropped(NAME, "rx" if self.row.above else "tx")
