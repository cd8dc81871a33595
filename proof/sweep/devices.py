# SPDX-License-Identifier: GPL-2.0-only
"""The device under test of a row: nd0, in the topology that lab.py draws.

A tun or tap has the address HERE, and a route to THERE. A macvtap or ipvtap is above up0 and has
the address ABOVE.

A row's neighbour is a bridge (with HERE and the port nd0, or below a macvtap), a VLAN (above nd0,
or below a macvtap), or a second queue of nd0 with a slow reader.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from guestlib.failure import GuestError
from guestlib.namespaces import inside
from guestlib.process import ip_batch, netns_path
from guestlib.timing import wait_until
from guestlib.tundev import IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, IFF_TUN, TUNSETIFF, TunDevice
from nodrop.host import ethtool
from proof.sweep import qdisc
from proof.sweep.lab import LOWER, VLAN_ID, Lab, mac_of
from proof.sweep.rows import Row

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


def dropped(device: str, way: str) -> int:
    """Return a device's drop counter, of transmitted (``tx``) or received (``rx``) packets."""
    return int(Path(f"/sys/class/net/{device}/statistics/{way}_dropped").read_text())


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
        flags = IFF_TAP if row.kind == "tap" else IFF_TUN
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
            with suppress(FileNotFoundError):
                if self.netns:
                    with inside(netns_path(self.netns)):
                        knob.write_text(value)
                else:
                    knob.write_text(value)

        switch("0")
        if self.netns:
            self._stack.callback(switch, "1")
        if self.row.above:
            ip_batch([f"link set dev {NAME} allmulticast on"])

    def set_qdisc(self, kind: str) -> None:
        """Replace the device's qdisc."""
        if not self.row.above:
            qdisc.replace(NAME, kind)

    def resize(self, slots: int) -> None:
        """Set the device's txqueuelen."""
        (DEVICE / "tx_queue_len").write_text(str(slots))

    def counters(self) -> dict[str, int]:
        """Return the driver's counters, summed over the queues."""
        found: dict[str, int] = {}
        for name, value in ethtool.stats(NAME).items():
            word = name.partition("_")[2]
            found[word] = found.get(word, 0) + value
        return found

    def dropped(self) -> int:
        """Return the device's counter of drops on the way to its reader."""
        return dropped(NAME, "rx" if self.row.above else "tx")
