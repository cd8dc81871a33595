# SPDX-License-Identifier: GPL-2.0-only
"""A macvtap or ipvtap device and its file."""

from __future__ import annotations

import fcntl
import struct
from contextlib import suppress
from pathlib import Path

from guestlib.chardev import DeviceFile
from guestlib.failure import GuestError
from guestlib.process import ip_batch
from guestlib.tundev import IFF_NO_PI, IFF_TAP, TUNSETIFF, TUNSETOFFLOAD

TUNSETSNDBUF = 0x400454D4
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
        self,
        name: str,
        lower: str,
        kind: str,
        *,
        mac: str = "",
        ring: int = 0,
        sndbuf: int = 0,
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
        """The open file."""
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
