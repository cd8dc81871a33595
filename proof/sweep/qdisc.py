# SPDX-License-Identifier: GPL-2.0-only
"""A device's qdiscs: set by tc, looked at again and again without a process for each look."""

from __future__ import annotations

import itertools
import socket
import struct

from lab.guest.process import tool
from proof.netlink import DONE, DUMP, ERROR, REQUEST, attributes, message, messages, raise_for

_GETQDISC, _ROOT = 38, 0xFFFFFFFF
_TC = struct.Struct("=BxxxiIII")
_STATS2, _STATS_QUEUE = 7, 3
_CLASS = "htb rate 8gbit burst 1mb quantum 100000"
"""It never has to wait."""
_LEAF = "pfifo limit 1000"
"""By itself a leaf of htb would hold as many as the device's ring, none for 0."""
_WORDS = {
    "tbf": "tbf rate 16mbit burst 20000 limit 100000000",
    "netem": "netem delay 1ms limit 100000",
    "htb": "htb default 1 direct_qlen 1000",
}
"""Others have no options."""
_handles = itertools.count(1)


def replace(device: str, kind: str) -> None:
    """Give a device another root qdisc; to have it anew, too.

    Args:
        kind: in ``tc``'s words; htb has one class.
    """
    # Without a handle that is new the kernel would change the qdisc that is there.
    handle = f"{1 + next(_handles) % 0x7000:x}:"
    own = "" if kind == "noqueue" else f"handle {handle}"
    lines = [f"qdisc replace dev {device} root {own} {_WORDS.get(kind, kind)}"]
    if kind == "htb":
        lines += [
            f"class replace dev {device} parent {handle} classid {handle}1 {_CLASS}",
            f"qdisc replace dev {device} parent {handle}1 {_LEAF}",
        ]
    tool(["tc", "-batch", "-"], text="\n".join(lines) + "\n")


def look(device: str) -> tuple[int, int]:
    """Return how many packets wait in a device's qdiscs, and how many these have dropped."""
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
