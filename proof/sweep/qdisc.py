# SPDX-License-Identifier: GPL-2.0-only
"""A device's qdiscs: replaced by tc, sampled by netlink, which needs no process."""

from __future__ import annotations

import itertools
import socket
import struct

from guestlib.process import tool
from proof.netlink import DONE, DUMP, ERROR, REQUEST, attributes, message, messages, raise_for

_GETQDISC, _ROOT = 38, 0xFFFFFFFF
_TC = struct.Struct("=BxxxiIII")
_STATS2, _STATS_QUEUE = 7, 3
_CLASS = "htb rate 8gbit burst 1mb quantum 100000"
"""A rate that never delays packets."""
_LEAF = "pfifo limit 1000"
"""The default leaf of htb has the limit txqueuelen, which may be 0."""
_WORDS = {
    "tbf": "tbf rate 16mbit burst 20000 limit 100000000",
    "netem": "netem delay 1ms limit 100000",
    "htb": "htb default 1 direct_qlen 1000",
}
"""Arguments of tc; other qdiscs have none."""
_handles = itertools.count(1)


def replace(device: str, kind: str) -> None:
    """Replace a device's root qdisc, also by a new one of the same kind.

    Args:
        kind: as for ``tc``; htb gets one class.
    """
    # Without a new handle the kernel would only change the existing qdisc.
    handle = f"{1 + next(_handles) % 0x7000:x}:"
    own = "" if kind == "noqueue" else f"handle {handle}"
    lines = [f"qdisc replace dev {device} root {own} {_WORDS.get(kind, kind)}"]
    if kind == "htb":
        lines += [
            f"class replace dev {device} parent {handle} classid {handle}1 {_CLASS}",
            f"qdisc replace dev {device} parent {handle}1 {_LEAF}",
        ]
    tool(["tc", "-batch", "-"], text="\n".join(lines) + "\n")


def sample(device: str) -> tuple[int, int]:
    """Return the packets queued in a device's qdiscs, and the qdiscs' drops."""
    index = socket.if_nametoindex(device)
    waiting = drops = 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as sock:
        sock.send(message(_GETQDISC, REQUEST | DUMP, 1, _TC.pack(0, index, 0, 0, 0)))
        while True:
            for what, _, content in messages(sock.recv(1 << 17)):
                if what == ERROR:
                    raise_for(content)
                if what == DONE:
                    return waiting, drops
                _, found, _, parent, _ = _TC.unpack_from(content)
                if found != index or parent != _ROOT:
                    continue
                stats = dict(attributes(dict(attributes(content[_TC.size :]))[_STATS2]))
                length, _, dropped = struct.unpack_from("=3I", stats[_STATS_QUEUE])
                waiting, drops = waiting + length, drops + dropped
