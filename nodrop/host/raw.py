# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's answers about a machine, before interpretation; can be stored as JSON.

A recorded host is one such file; ``python -m nodrop.doctor FILE`` writes two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

HOLDERS = "sys/module/nodrop/holders"
"""Key of a machine's files: the modules that use nodrop's core, in one line."""

CHECKSUMS = "tx-checksumming"
"""Key of a device's flags: an offload that only its reader can switch on."""


@dataclass(frozen=True)
class Holder:
    """A process that has a virtual link open.

    Attributes:
        pid: process ID.
        name: the kernel's name of the program (15 characters).
        user: user ID.
        netns: inode of its network namespace; 0: not readable.
        tun: names of TUN and TAP devices, one for each open queue.
        tap: ifindexes of macvtap and ipvtap devices, one for each open queue.
        vhost: number of times it has /dev/vhost-net open.
        vhost_others: number of times it has other vhost devices open, such as vhost-vsock.
        workers: vhost's threads of this process: "name", "tid", and "cpu" that it last ran on.
        cgroup: content of its cgroup file.
        guest: name of the virtual machine on QEMU's command line.
        edge: devices of ``tun`` and ``tap`` whose file an epoll instance of it watches for edges
            alone (EPOLLET), one for each such file.
        device_netns: device name of ``tun`` -> inode of its namespace, if that was queried.
    """

    pid: int
    name: str
    user: int
    netns: int
    tun: list[str] = field(default_factory=list)
    tap: list[int] = field(default_factory=list)
    vhost: int = 0
    vhost_others: int = 0
    workers: list[dict[str, Any]] = field(default_factory=list)
    cgroup: str = ""
    guest: str = ""
    device_netns: dict[str, int] = field(default_factory=dict)
    edge: list[str | int] = field(default_factory=list)


@dataclass(frozen=True)
class RawNamespace:
    """One network namespace.

    Attributes:
        name: its name for messages; "": the command's own.
        inode: inode number.
        links: ``ip -j -d -s link``.
        qdiscs: ``tc -j -s qdisc``.
        sysfs: device without nodrop's flag -> file below /sys/class/net/DEVICE -> content.
        stats: device -> ``ethtool -S``, if the driver has counters.
        flags: device -> private flags, if the driver has any; CHECKSUMS, if it is persistent.
        time_s: when it was read, monotonic.
    """

    name: str
    inode: int
    links: list[dict[str, Any]]
    qdiscs: list[dict[str, Any]]
    sysfs: dict[str, dict[str, str]]
    stats: dict[str, dict[str, int]]
    flags: dict[str, dict[str, bool]]
    time_s: float


@dataclass(frozen=True)
class RawMachine:
    """The data that all namespaces of a machine share.

    Attributes:
        release: release of the running kernel.
        files: path -> content of the files below /sys and /proc/sys that exist.
        livepatch: state of nodrop's livepatch: "" (not loaded), "in" (loaded), "moving" (in
            transition).
        holders: processes that have virtual links open.
        hidden: number of processes that could not be inspected.
        root: whether the command ran as root.
    """

    release: str
    files: dict[str, str]
    livepatch: str
    holders: list[Holder]
    hidden: int
    root: bool


@dataclass(frozen=True)
class Raw:
    """A machine at one time.

    Attributes:
        unread: namespaces that could not be read -> reason, as a sentence.
        unreached: number of namespaces that were not read in time.
    """

    machine: RawMachine
    namespaces: list[RawNamespace]
    unread: dict[str, str] = field(default_factory=dict)
    unreached: int = 0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return a record from its JSON.

        Raises:
            TypeError: it has other fields.
        """
        machine = dict(data["machine"])
        machine["holders"] = [Holder(**holder) for holder in machine["holders"]]
        namespaces = [RawNamespace(**namespace) for namespace in data["namespaces"]]
        return cls(**{**data, "machine": RawMachine(**machine), "namespaces": namespaces})
