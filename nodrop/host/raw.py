# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel said of a machine, as JSON, before anybody makes sense of it.

A recorded host is one such file; ``python -m nodrop.doctor FILE`` writes two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

HOLDERS = "sys/module/nodrop/holders"
"""Among a machine's files: the modules that use nodrop's core, in one line."""

CHECKSUMS = "tx-checksumming"
"""Among a device's flags: an offload that only its reader can switch on."""


@dataclass(frozen=True)
class Holder:
    """A process that has one end of a virtual link open.

    Attributes:
        pid: its number.
        name: its program, as the kernel has it (15 characters).
        user: the number of its user.
        netns: inode of its network namespace; 0: not readable.
        tun: names of TUN and TAP devices, one for each open queue.
        tap: ifindexes of macvtap and ipvtap devices, one for each open queue.
        vhost: how many times it has /dev/vhost-net open.
        vhost_others: how many times it has others of vhost's devices open, such as vhost-vsock.
        workers: vhost's threads that work for it: "name", "tid", and "cpu" that it ran on last.
        cgroup: the content of its cgroup file.
        guest: the name of the virtual machine on its command line, where it is QEMU.
        device_netns: inode of the namespace that a name of ``tun`` is in, where that was asked.
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


@dataclass(frozen=True)
class RawNamespace:
    """One network namespace.

    Attributes:
        name: as people call it; "": the one that the command runs in.
        inode: what the kernel knows it by.
        links: ``ip -j -d -s link``.
        qdiscs: ``tc -j -s qdisc``.
        sysfs: device -> file below /sys/class/net/DEVICE -> content.
        stats: device -> ``ethtool -S``, where the driver has counters.
        flags: device -> private flags, where the driver has some, and CHECKSUMS.
        time_s: when all that was read, monotonic.
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
    """What all namespaces of a machine share.

    Attributes:
        release: of the running kernel.
        files: path -> content of files below /sys/module and /proc/sys that were found.
        livepatch: what nodrop's livepatch does: "", "in", "moving" (in or out).
        holders: processes that hold virtual links.
        hidden: how many processes could not be looked into.
        root: whether the command ran with all rights.
    """

    release: str
    files: dict[str, str]
    livepatch: str
    holders: list[Holder]
    hidden: int
    root: bool


@dataclass(frozen=True)
class Raw:
    """A machine, as it was at one time.

    Attributes:
        unread: namespaces that could not be read -> why, in a sentence.
        unreached: how many others there was no time for.
    """

    machine: RawMachine
    namespaces: list[RawNamespace]
    unread: dict[str, str] = field(default_factory=dict)
    unreached: int = 0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return what was recorded as JSON.

        Raises:
            TypeError: it was made by something else.
        """
        machine = dict(data["machine"])
        machine["holders"] = [Holder(**holder) for holder in machine["holders"]]
        namespaces = [RawNamespace(**namespace) for namespace in data["namespaces"]]
        return cls(**{**data, "machine": RawMachine(**machine), "namespaces": namespaces})
