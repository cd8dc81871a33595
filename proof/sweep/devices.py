# SPDX-License-Identifier: GPL-2.0-only
"""The device of a row: nd0, in the surroundings that lab.py draws.

A tun or tap has HERE, and THERE is behind it. A macvtap or ipvtap is above up0 and is ABOVE.

The neighbour of a row is a bridge (nd0 is its port and it has HERE, or it is below a macvtap), a
VLAN (above nd0, or below a macvtap), or a second queue of nd0 whose reader is slow.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from lab.guest.failure import GuestError
from lab.guest.namespaces import inside
from lab.guest.process import ip_batch, netns_path
from lab.guest.timing import wait_until
from lab.guest.tundev import IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, IFF_TUN, TUNSETIFF, TunDevice
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
    # Snooping would make it send packets of its own.
    "bridge": "bridge mcast_snooping 0",
}


def dropped(device: str, way: str) -> int:
    """Return what a device says it dropped of what it was to send (``tx``), or got (``rx``)."""
    return int(Path(f"/sys/class/net/{device}/statistics/{way}_dropped").read_text())


class Victim:
    """The device of a row; a context manager.

    Attributes:
        fds: an open file for each of its queues.
        top: what stands above it and has its address; itself: nothing.
        out: the device through which senders reach it.
        netns: the namespace in which they are; "": this one.
        address: what they send to.
        mac: the hardware's there.
        peer, peer_mac: who answers it.
    """

    def __init__(self, row: Row, lab: Lab) -> None:
        self.row, self.lab = row, lab
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
        # io_uring lets go of the files of a reader that was killed in the background.
        if not wait_until(lambda: not DEVICE.exists()):
            raise GuestError(f"{NAME} does not go")

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
        """Give the device, or what stands above it, its address, and bring both up."""
        self.up(f"address replace {HERE} peer {THERE} dev {self.top}")

    def up(self, *lines: str) -> None:
        """Bring it up, after other lines for ip; it forgot its neighbours when it went down."""
        if self.row.kind == "tap":
            # Before a packet can wait for an answer to ARP, and be overtaken.
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
        # Some go with the device below them.
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
        # An ipvtap knows by its address what is for whom.
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
        """Senders of multicast need it; it is off everywhere else, so that nobody else sends."""
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
        """Give the device a qdisc."""
        if not self.row.above:
            qdisc.replace(NAME, kind)

    def resize(self, slots: int) -> None:
        """Change the length of its ring."""
        (DEVICE / "tx_queue_len").write_text(str(slots))

    def counters(self) -> dict[str, int]:
        """The driver's counters, summed over the queues."""
        found: dict[str, int] = {}
        for name, value in ethtool.stats(NAME).items():
            word = name.partition("_")[2]
            found[word] = found.get(word, 0) + value
        return found

    def dropped(self) -> int:
        """What the device says it dropped on its way to its reader."""
        return dropped(NAME, "rx" if self.row.above else "tx")
