# SPDX-License-Identifier: GPL-2.0-only
"""tinc 1.0, two daemons in router mode."""

from __future__ import annotations

from pathlib import Path

from nodrop.guest.command import tool
from nodrop.guest.slow import patience
from nodrop.guest.vpns.base import End, Process, Vpn

KEY_BITS = "1024"
"""Short keys are soon made, and the traffic does not use them."""


class Tinc(Vpn):
    """Each end has a folder with its settings and key, and both hosts' files."""

    name = "tincd"
    programs = ("tincd",)
    can_be_plain = True
    trouble = ("Closing connection", "Timeout from")

    def start(self) -> None:
        """Start both daemons, which open their devices, and configure these."""
        for end in self.ends:
            self._write(end)
        hosts = {end.device: (self._place(end) / "hosts" / end.device) for end in self.ends}
        for end in self.ends:
            for name, file in hosts.items():
                (self._place(end) / "hosts" / name).write_text(file.read_text())
        near, far = self.ends
        self.far = self._start(far)
        self.until(lambda: "Ready" in self.far.said())
        self.near = self._start(near)
        for end in self.ends:
            self.configure(end)

    def _place(self, end: End) -> Path:
        return self.folder / end.device

    def _write(self, end: End) -> None:
        """Write an end's settings; its key goes into two of the files."""
        place = self._place(end)
        (place / "hosts").mkdir(parents=True)
        other = self.ends[0] if end is self.ends[1] else self.ends[1]
        lines = [f"Name = {end.device}", f"Interface = {end.device}", "DeviceType = tun"]
        lines += ["AddressFamily = ipv4", f"BindToAddress = {end.outer}"]
        if end is self.ends[0]:
            lines += [f"ConnectTo = {other.device}"]
        (place / "tinc.conf").write_text("\n".join([*lines, ""]))
        lines = [f"Address = {end.outer}", f"Subnet = {end.inner}/32", "Compression = 0"]
        if self.options.plain:
            lines += ["Cipher = none", "Digest = none", "MACLength = 0"]
        (place / "hosts" / end.device).write_text("\n".join([*lines, ""]))
        tool(["tincd", "-c", str(place), "-K", KEY_BITS], timeout=patience(30))

    def _start(self, end: End) -> Process:
        place = self._place(end)
        words = ["tincd", "-c", str(place), "-D", "-d", "2", f"--pidfile={place}/pid"]
        return self.run(end, words)
