# SPDX-License-Identifier: GPL-2.0-only
"""Character devices: /dev/net/tun, whose devices this process creates, and our modules'."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Self

from guestlib.environment import GuestError, Unsupported
from guestlib.process import ip_batch, tool

IFF_TUN = 0x0001
IFF_TAP = 0x0002
IFF_MULTI_QUEUE = 0x0100
IFF_NO_PI = 0x1000
IFF_VNET_HDR = 0x4000
TUNSETIFF = 0x400454CA
TUNSETPERSIST = 0x400454CB
TUNGETFEATURES = 0x800454CF
TUNSETOWNER, TUNSETLINK, TUNSETGROUP = 0x400454CC, 0x400454CD, 0x400454CE
TUNSETTXFILTER = 0x400454D1
TUNSETSTEERINGEBPF, TUNSETFILTEREBPF = 0x800454E0, 0x800454E1
TUNSETOFFLOAD = 0x400454D0
TSO_OFFLOADS = 0x7
"""TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6: the reader takes TCP packets before segmentation."""
UDP_OFFLOADS = 0x61
"""TUN_F_CSUM, TUN_F_USO4, TUN_F_USO6: the same for UDP. Since Linux 6.2, both or none."""
TUNGETIFF = 0x800454D2
TUNSETSNDBUF = 0x400454D4
TUNSETQUEUE = 0x400454D9
IFF_ATTACH_QUEUE, IFF_DETACH_QUEUE = 0x0200, 0x0400
IFNAMSIZ = 16
MULTI_TUN = IFF_TUN | IFF_MULTI_QUEUE
IOC_WRITE = 1
IOC_READ = 2


def ioc(direction: int, number: int, size: int) -> int:
    """Return the number of one of our modules' ioctls, as the kernel's _IOC() does.

    Args:
        direction: IOC_WRITE or IOC_READ, as seen by the caller.
        size: of the structure, bytes.
    """
    return direction << 30 | size << 16 | ord("K") << 8 | number


class DeviceFile:
    """An open character device; a context manager.

    Args:
        path: the device's file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def _set_up(self) -> None:
        """Configure the open file; if this raises, the file is closed."""

    def __enter__(self) -> Self:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the kernel removes what was set up through it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def known_flags() -> int:
    """Return the loaded driver's IFF_ flags besides IFF_TUN and IFF_TAP."""
    with Path("/dev/net/tun").open("rb", buffering=0) as file:
        return int(struct.unpack("I", fcntl.ioctl(file, TUNGETFEATURES, bytes(4)))[0])


def opened_flags(name: str, *, netns: str | None = None) -> int:
    """Return the IFF_ flags with which a device was opened."""
    # ip mounts the namespace's own /sys.
    where = ["ip", "netns", "exec", netns] if netns else []
    return int(tool([*where, "cat", f"/sys/class/net/{name}/tun_flags"]), 16)


def attach_queue(fd: int, attach: bool) -> None:
    """Attach an open file's queue to its device, or detach it."""
    what = IFF_ATTACH_QUEUE if attach else IFF_DETACH_QUEUE
    fcntl.ioctl(fd, TUNSETQUEUE, struct.pack(f"{IFNAMSIZ}xH22x", what))


class TunDevice(DeviceFile):
    """An attached /dev/net/tun file; a context manager.

    Args:
        name: of the device, at most 15 bytes.
        flags: IFF_TUN or IFF_TAP and others; IFF_NO_PI is added.
        offloads: that the reader supports, such as TSO_OFFLOADS; adds IFF_VNET_HDR.
        exact: add no flags.
        path: of the node to open.

    Raises:
        Unsupported: on entry, if this kernel's driver does not have these offloads.
    """

    def __init__(
        self,
        name: str,
        flags: int,
        *,
        offloads: int = 0,
        exact: bool = False,
        path: str = "/dev/net/tun",
    ) -> None:
        super().__init__(path)
        self.name = name
        added = IFF_NO_PI | (IFF_VNET_HDR if offloads else 0)
        self._flags = flags if exact else flags | added
        self._offloads = offloads

    @property
    def fd(self) -> int:
        return self._fd

    def _set_up(self) -> None:
        known = struct.unpack("I", fcntl.ioctl(self._fd, TUNGETFEATURES, bytes(4)))[0]
        missing = self._flags & ~(known | IFF_TUN | IFF_TAP)
        if missing:
            raise GuestError(f"this driver does not know the flags {missing:#x}")
        request = struct.pack(f"{IFNAMSIZ}sH22x", self.name.encode(), self._flags)
        fcntl.ioctl(self._fd, TUNSETIFF, request)
        if self._offloads:
            self._set_offloads()

    def _set_offloads(self) -> None:
        try:
            fcntl.ioctl(self._fd, TUNSETOFFLOAD, self._offloads)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise Unsupported(
                f"this kernel's driver does not have the offloads {self._offloads:#x}"
            ) from error


def configure(
    name: str,
    *,
    txqueuelen: int,
    qdisc: str,
    address: str = "",
    netns: str | None = None,
) -> None:
    """Set a device's ring size, qdisc and address, and bring it up.

    Args:
        txqueuelen: slots of the ring, >= 1.
        qdisc: the root qdisc and its options, in ``tc``'s syntax.
        address: the arguments of ``ip address add``, or empty.
        netns: the device's namespace; None: this one.
    """
    where = ["-n", netns] if netns else []
    # The qdisc first, so that it has counted every packet.
    tool(["tc", *where, "qdisc", "replace", "dev", name, "root", *qdisc.split()])
    lines = [f"link set dev {name} txqueuelen {txqueuelen}"]
    if address:
        lines.append(f"address add {address} dev {name}")
    ip_batch([*lines, f"link set dev {name} up"], netns=netns)
