# SPDX-License-Identifier: GPL-2.0-only
"""Reads the kernel's counters of a device, its qdisc and a protocol, and a device's address."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from guestlib.environment import GuestError
from guestlib.namespaces import inside
from guestlib.process import tool
from nodrop.host import ethtool
from nodrop.host.counters import by_queue, total

_SIOCGIFHWADDR = 0x8927


@dataclass(frozen=True)
class LinkCounters:
    """``ip -s link``: packets that the reader took, and drops of the driver in both directions."""

    tx_packets: int
    tx_bytes: int
    tx_dropped: int
    rx_dropped: int


@dataclass(frozen=True)
class QdiscCounters:
    """Root qdisc of ``tc -s qdisc``; all zero with noqueue.

    Attributes:
        packets: passed to the driver.
        drops: dropped by the qdisc, at its limit or by its AQM.
        requeues: packets that the driver refused at first.
        queued: packets in the qdisc now.
    """

    kind: str
    packets: int
    drops: int
    requeues: int
    queued: int


def parse_link(text: str) -> LinkCounters:
    """Parse the output of ``ip -j -s link show dev NAME``."""
    try:
        stats = json.loads(text)[0]["stats64"]
        tx, rx = stats["tx"], stats["rx"]
        return LinkCounters(
            int(tx["packets"]), int(tx["bytes"]), int(tx["dropped"]), int(rx["dropped"])
        )
    except (ValueError, LookupError, TypeError) as error:
        raise GuestError("cannot parse the output of 'ip -j -s link'") from error


def parse_qdisc(text: str) -> QdiscCounters:
    """Parse the output of ``tc -j -s qdisc show dev NAME root``."""
    try:
        root = next(entry for entry in json.loads(text) if entry.get("root"))
        return QdiscCounters(
            kind=str(root["kind"]),
            packets=int(root.get("packets", 0)),
            drops=int(root.get("drops", 0)),
            requeues=int(root.get("requeues", 0)),
            queued=int(root.get("qlen", 0)),
        )
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
        raise GuestError("cannot parse the output of 'tc -j -s qdisc'") from error


def parse_snmp(text: str, protocol: str) -> dict[str, int]:
    """Parse the lines of a protocol in /proc/net/snmp.

    Raises:
        GuestError: there are none.
    """
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith(f"{protocol}:")]
    if len(lines) != 2:
        raise GuestError(f"/proc/net/snmp has no lines for {protocol}")
    names, values = lines
    return dict(zip(names, map(int, values), strict=True))


def link_counters(name: str, *, netns: str | None = None) -> LinkCounters:
    where = ["-n", netns] if netns else []
    return parse_link(tool(["ip", *where, "-j", "-s", "link", "show", "dev", name]))


def qdisc_counters(name: str, *, netns: str | None = None) -> QdiscCounters:
    where = ["-n", netns] if netns else []
    return parse_qdisc(tool(["tc", *where, "-j", "-s", "qdisc", "show", "dev", name]))


def dropped(device: str, way: str) -> int:
    """Return a device's drop counter, of transmitted (``tx``) or received (``rx``) packets."""
    return int(Path(f"/sys/class/net/{device}/statistics/{way}_dropped").read_text())


def mac_of(device: str, netns: str | None = None) -> bytes:
    """Return a device's hardware address."""
    with inside(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return fcntl.ioctl(sock, _SIOCGIFHWADDR, struct.pack("40s", device.encode()))[18:24]


def driver_counters(name: str, *, netns: str | None = None) -> dict[str, int]:
    """Read the driver's own counters (``ethtool -S``); empty if it has none."""
    with inside(netns):
        return ethtool.stats(name)


def sum_of_queues(name: str) -> dict[str, int]:
    """Return nodrop's counters of a device, summed over its queues; empty if it has none."""
    return total(by_queue(driver_counters(name)).values())
