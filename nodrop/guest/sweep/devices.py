# SPDX-License-Identifier: GPL-2.0-only
"""The device of a row: nd0, in the surroundings that lab.py draws.

A tun or tap has HERE, and THERE is behind it. A macvtap or ipvtap is above up0 and is ABOVE.

The neighbour of a row is a bridge (nd0 is its port and it has HERE, or it is below a macvtap), a
VLAN (above nd0, or below a macvtap), or a second queue of nd0 whose reader is slow.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from nodrop.guest.command import ip_batch, netns_path
from nodrop.guest.failure import GuestError
from nodrop.guest.netlink import attribute
from nodrop.guest.netns import inside
from nodrop.guest.rtnetlink import ALLMULTI, UP
from nodrop.guest.slow import happens
from nodrop.guest.sweep.lab import LOWER, VLAN_ID, Lab, mac_of
from nodrop.guest.sweep.rows import Row
from nodrop.guest.tundev import (
    IFF_MULTI_QUEUE,
    IFF_NO_PI,
    IFF_TAP,
    IFF_TUN,
    TUNSETIFF,
    TunDevice,
)
from nodrop.host import ethtool

NAME = "nd0"
HERE, THERE = "198.18.0.1", "198.18.0.2"
ABOVE, FAR = "10.9.0.1", "10.9.0.3"
GUEST_MAC = bytes.fromhex("020000000002")
_DATA = {
    "macvtap": attribute(1, struct.pack("=I", 4)),
    "ipvtap": attribute(1, struct.pack("=H", 0)),
    "vlan": attribute(1, struct.pack("=H", VLAN_ID)),
    "bridge": attribute(23, b"\0"),
}
"""Modes bridge and l2; a number; no snooping, for which a bridge sends packets of its own."""


class Victim:
    """The device of a row; a context manager.

    Attributes:
        fds: an open file for each of its queues.
        index: the device's.
        top: of what stands above it and has its address, 0: nothing.
        out: the device through which senders reach it.
        netns: the namespace in which they are; "": this one.
        address: what they send to.
        mac: the hardware's there.
        peer, peer_mac: who answers it.
    """

    def __init__(self, row: Row, lab: Lab) -> None:
        self.row, self.lab = row, lab
        self.fds: list[int] = []
        self.index = self.top = 0
        self.out, self.netns = NAME, ""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        # io_uring lets go of the files of a reader that was killed in the background.
        if not happens(lambda: not Path("/sys/class/net", NAME).exists()):
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
        net = self.lab.net
        self.index = net.index(NAME)
        net.set_txqueuelen(self.index, row.slots)
        self.set_qdisc(row.qdisc)
        if row.neighbour == "bridge":
            self.out = "br0"
            self.top = self._link("br0", "bridge")
            net.set_master(self.index, self.top)
            if row.sender == "bridged":
                self._enslave(self.top)
                self.out, self.netns = "up1", "far"
        elif row.neighbour == "vlan":
            self.out = f"{NAME}.5"
            self.top = self._link(self.out, "vlan", self.index)
        self.address_it()

    def address_it(self) -> None:
        """Give the device, or what stands above it, its address, and bring both up."""
        self.lab.net.add_address(self.top or self.index, HERE, THERE)
        self.up()

    def up(self) -> None:
        """Bring it up; it forgot its neighbours when it went down."""
        net, top = self.lab.net, self.top or self.index
        if self.row.kind == "tap":
            # Before a packet can wait for an answer to ARP, and be overtaken.
            net.add_neighbour(top, THERE, GUEST_MAC)
            self.peer_mac = mac_of("br0" if self.row.neighbour == "bridge" else NAME)
        net.set_flags(self.index, UP, UP)
        net.set_flags(top, UP, UP)
        if self.row.sender == "multicast" and not self.row.above:
            self._speak_ipv6()

    def _link(self, name: str, kind: str, lower: int = 0) -> int:
        index = self.lab.net.add_link(name, kind, lower, _DATA[kind])
        self._stack.callback(self._delete, index)
        return index

    def _delete(self, index: int) -> None:
        # Some go with the device below them.
        with suppress(OSError):
            self.lab.net.delete(index)

    def _enslave(self, bridge: int) -> None:
        port = self.lab.net.index(LOWER)
        self.lab.net.set_master(port, bridge)
        self._stack.callback(self.lab.net.set_master, port, 0)

    def _make_above(self) -> None:
        row, net = self.row, self.lab.net
        self.out, self.netns = "up1", "far"
        self.address, self.peer, self.peer_mac = ABOVE, FAR, self.lab.up1_mac
        lower = net.index(LOWER)
        if row.neighbour == "bridge":
            bridge = self._link("br0", "bridge")
            self._enslave(bridge)
            net.set_flags(bridge, UP, UP)
            lower = bridge
        elif row.neighbour == "vlan":
            lower = net.index(f"{LOWER}.5")
            self.out = "up1.5"
        mac = GUEST_MAC if row.kind == "macvtap" else b""
        self.index = net.add_link(NAME, row.kind, lower, _DATA[row.kind], mac, row.slots)
        self._stack.callback(self._delete, self.index)
        self.mac = mac or mac_of(NAME)
        for _ in range(self._queues()):
            fd = os.open(f"/dev/tap{self.index}", os.O_RDWR | os.O_CLOEXEC)
            self._stack.callback(os.close, fd)
            request = struct.pack("16sH22x", b"", IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE)
            fcntl.ioctl(fd, TUNSETIFF, request)
            self.fds.append(fd)
        if row.kind == "ipvtap":
            # It knows by that what is for whom.
            net.add_address(self.index, ABOVE, ABOVE)
        net.set_flags(self.index, UP, UP)
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
            self.lab.net.set_flags(self.index, ALLMULTI, ALLMULTI)

    def set_qdisc(self, kind: str) -> None:
        """Give the device a qdisc."""
        if not self.row.above:
            self.lab.net.replace_qdisc(self.index, kind)

    def counters(self) -> dict[str, int]:
        """The driver's counters, summed over the queues."""
        found: dict[str, int] = {}
        for name, value in ethtool.stats(NAME).items():
            word = name.partition("_")[2]
            found[word] = found.get(word, 0) + value
        return found

    def dropped(self) -> int:
        """What the device says it dropped on its way to its reader."""
        stats = self.lab.net.stats(self.index)
        return stats.rx_dropped if self.row.above else stats.tx_dropped
