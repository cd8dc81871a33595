# SPDX-License-Identifier: GPL-2.0-only
"""macvtap and ipvtap: their devices, and the ingress paths by which packets reach them.

    beyond          far             here                        sib
    b1 ------------ b0  up1 ------- up0 --- mt0 (macvtap)       sib0 (macvlan or
    10.8.0.2  10.8.0.1  10.9.0.3     |      or ipvtap,          ipvlan above up0)
                                     |      10.9.0.1            10.9.0.2
                                     +----- mt1 (macvtap)
                                     +----- mt2 (as mt0), 10.9.0.5

========== =================================================================
wire       sent in ``beyond``, forwarded by ``far``: as from a wire, packets
           have no socket any more
veth       sent in ``far``: a container's socket, over a pair of veth
sibling    sent in ``sib`` through a macvlan of the same lower device
ipvlan-l2  the same through an ipvlan, to an ipvtap
ipvlan-l3  the same in mode l3
guest      written into ``mt1``, like a virtual machine's packets
========== =================================================================

``mt2`` exists if a second guest is to be reached by the same path.
"""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from guestlib.environment import NO_IPV6, GuestError, set_sysctls
from guestlib.namespaces import inside, namespaces
from guestlib.netstats import dropped, mac_of
from guestlib.packets import ethernet, ip4
from guestlib.process import ip_batch
from guestlib.tundev import (
    IFF_NO_PI,
    IFF_TAP,
    TUNSETIFF,
    TUNSETOFFLOAD,
    TUNSETSNDBUF,
    DeviceFile,
)

NAME, LOWER = "mt0", "up0"
ADDRESS, SECOND_ADDRESS, GUEST_ADDRESS = "10.9.0.1", "10.9.0.5", "10.9.0.4"
SECOND, SECOND_MAC = "mt2", "02:00:00:00:00:05"
MAC, GUEST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
"""Of the tap that is read (vhost_client sends to it), and of the tap that is written."""

SENDERS = {
    "wire": "beyond",
    "veth": "far",
    "sibling": "sib",
    "ipvlan-l2": "sib",
    "ipvlan-l3": "sib",
}
"""By ingress path: the namespace of its sockets."""

WAYS = (*SENDERS, "guest")
NETNS = ("far", "beyond", "sib")
INT_MAX = (1 << 31) - 1
"""QEMU's send buffer of a tap: no limit."""


class LinkTap(DeviceFile):
    """A device on top of another one, and one open file of it; a context manager.

    Args:
        name: of the device, at most 15 bytes.
        lower: the device below it.
        kind: the arguments of ``ip link add type``, such as ``macvtap mode bridge``.
        mac: its address; empty: the kernel's choice, or the lower device's.
        ring: txqueuelen, slots; 0: the kernel's default of 500.
        sndbuf: the file's send buffer, bytes; 0: the default.
    """

    def __init__(
        self, name: str, lower: str, kind: str, *, mac: str = "", ring: int = 0, sndbuf: int = 0
    ) -> None:
        super().__init__("")
        self.name = name
        self._link = f"link add link {lower} name {name} type {kind}"
        address = f" address {mac}" if mac else ""
        self._set = f"link set dev {name}{address} up"
        self._ring = ring
        self._sndbuf = sndbuf

    @property
    def fd(self) -> int:
        return self._fd

    @property
    def path(self) -> Path:
        """The device's file: each open() adds a queue to the device."""
        index = Path(f"/sys/class/net/{self.name}/ifindex").read_text(encoding="ascii")
        return Path(f"/dev/tap{index.strip()}")

    def __enter__(self) -> LinkTap:
        lines = [self._link]
        if self._ring:
            lines.append(f"link set dev {self.name} txqueuelen {self._ring}")
        ip_batch([*lines, self._set])
        try:
            self._path = str(self.path)
            super().__enter__()
        except BaseException:
            self.close()
            raise
        return self

    def _set_up(self) -> None:
        # No header before packets, and no offloads.
        fcntl.ioctl(self._fd, TUNSETIFF, struct.pack("16sH22x", b"", IFF_TAP | IFF_NO_PI))
        fcntl.ioctl(self._fd, TUNSETOFFLOAD, 0)
        if self._sndbuf:
            fcntl.ioctl(self._fd, TUNSETSNDBUF, struct.pack("i", self._sndbuf))

    def close(self) -> None:
        """Close the file and delete the device if it still exists."""
        super().close()
        # It may have gone with its lower device or its namespace.
        with suppress(GuestError):
            ip_batch([f"link delete dev {self.name}"])


def rx_dropped(name: str = NAME) -> int:
    """Return a device's count of packets dropped on the way to its reader."""
    return dropped(name, "rx")


@cache
def _empty_frame(size: int) -> bytes:
    to, source = (bytes.fromhex(mac.replace(":", "")) for mac in (MAC, GUEST_MAC))
    datagram = struct.pack("!4H", 9, 9, 8 + size, 0) + bytes(size)
    return ethernet(to, source) + ip4(datagram, at=(GUEST_ADDRESS, ADDRESS))


def frame(number: int, size: int) -> bytes:
    """Return an Ethernet frame with a number, from the guest's tap to the one that is read.

    Args:
        size: of the UDP payload, at least 8 bytes.
    """
    whole = _empty_frame(size)
    return whole[: len(whole) - size] + number.to_bytes(8, "big") + bytes(size - 8)


def kind_of(way: str, *, tap: bool) -> str:
    """Return the arguments of ``ip link add type`` for a path's devices."""
    if way.startswith("ipvlan"):
        return f"{'ipvtap' if tap else 'ipvlan'} mode {way.removeprefix('ipvlan-')}"
    return f"{'macvtap' if tap else 'macvlan'} mode bridge"


@contextmanager
def topology(way: str, *, ring: int = 0) -> Iterator[LinkTap]:
    """Create an ingress path's namespaces, devices and routes; yield the tap to read.

    Args:
        way: one of WAYS.
        ring: the tap's txqueuelen, slots; 0: the kernel's default.
    """
    with ExitStack() as stack:
        stack.enter_context(namespaces(*NETNS))
        for netns in NETNS:
            with inside(netns):
                set_sysctls(NO_IPV6)
        stack.enter_context(veth_to_far())
        mac = "" if way.startswith("ipvlan") else MAC
        tap = stack.enter_context(LinkTap(NAME, LOWER, kind_of(way, tap=True), mac=mac, ring=ring))
        if not mac:
            mac = _claim(NAME, ADDRESS)
        if SENDERS.get(way) == "sib":
            _sibling(way, mac)
        _neighbour("far", "up1", mac)
        if way == "wire":
            veth_beyond()
        yield tap


@contextmanager
def veth_to_far() -> Iterator[None]:
    """Connect this namespace (LOWER) and ``far`` (up1, 10.9.0.3) for the block."""
    ip_batch([f"link add {LOWER} type veth peer name up1 netns far", f"link set {LOWER} up"])
    try:
        ip_batch(["link set up1 up", "address add 10.9.0.3/24 dev up1"], netns="far")
        yield
    finally:
        ip_batch([f"link delete {LOWER}"])


def _claim(name: str, address: str) -> str:
    """Give an ipvtap its address, by which it receives packets; return its MAC address."""
    ip_batch([f"address add {address}/24 dev {name}"])
    return mac_of(LOWER).hex(":")


@contextmanager
def second_tap(way: str) -> Iterator[LinkTap]:
    """Yield a second tap to read, reached by the same ingress path as the first."""
    mac = "" if way.startswith("ipvlan") else SECOND_MAC
    with LinkTap(SECOND, LOWER, kind_of(way, tap=True), mac=mac) as tap:
        if not mac:
            mac = _claim(SECOND, SECOND_ADDRESS)
        _neighbour("far", "up1", mac, SECOND_ADDRESS)
        if SENDERS.get(way) == "sib" and way != "ipvlan-l3":
            _neighbour("sib", "sib0", mac, SECOND_ADDRESS)
        yield tap


def _sibling(way: str, mac: str) -> None:
    ip_batch(
        [
            f"link add link {LOWER} name sib0 type {kind_of(way, tap=False)}",
            "link set sib0 netns sib",
        ]
    )
    ip_batch(["link set sib0 up", "address add 10.9.0.2/24 dev sib0"], netns="sib")
    if way != "ipvlan-l3":
        _neighbour("sib", "sib0", mac)


def _neighbour(netns: str, device: str, mac: str, address: str = ADDRESS) -> None:
    """Add a permanent neighbour, because nothing replies to ARP for a tap's address."""
    ip_batch([f"neigh replace {address} lladdr {mac} dev {device} nud permanent"], netns=netns)


def veth_beyond() -> None:
    """Connect ``far`` (b0), which then forwards, and ``beyond`` (b1, 10.8.0.2)."""
    ip_batch(["link add b0 type veth peer name b1 netns beyond"], netns="far")
    ip_batch(["link set b0 up", "address add 10.8.0.1/24 dev b0"], netns="far")
    ip_batch(
        ["link set b1 up", "address add 10.8.0.2/24 dev b1", "route add default via 10.8.0.1"],
        netns="beyond",
    )
    with inside("far"):
        set_sysctls({"net/ipv4/ip_forward": "1"})


@contextmanager
def guest_tap(*, sndbuf: int = 0) -> Iterator[LinkTap]:
    """Yield a second macvtap on the same lower device, to write to.

    Args:
        sndbuf: its send buffer, bytes; 0: the default; INT_MAX: no limit, as in QEMU.
    """
    kind = kind_of("guest", tap=True)
    with LinkTap("mt1", LOWER, kind, mac=GUEST_MAC, sndbuf=sndbuf) as tap:
        yield tap
