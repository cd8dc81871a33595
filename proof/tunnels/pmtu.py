# SPDX-License-Identifier: GPL-2.0-only
"""``python -m proof.tunnels.pmtu FROM TO MTU``: lower a sender's path MTU.

Sends ICMP's "fragmentation needed" from the far end, as a router on the path would, about an
echo reply that was never sent. The sender's route gets an exception. All CPUs share an
exception's cached route; without one each CPU has its own.
"""

from __future__ import annotations

import socket
import struct
import sys

from proof.tunnels.links import checksum
from proof.tunnels.packets import ip4

_UNREACHABLE, _NEEDS_FRAGMENTATION = 3, 4


def message(sender: str, target: str, mtu: int) -> bytes:
    """Return the ICMP message about a packet from ``sender`` to ``target``.

    Args:
        mtu: of the link that was too small, bytes.
    """
    about = ip4(bytes(8), socket.IPPROTO_ICMP, fragment=0x4000, at=(sender, target))
    whole = struct.pack("!BBHHH", _UNREACHABLE, _NEEDS_FRAGMENTATION, 0, 0, mtu) + about
    return whole[:2] + struct.pack("!H", checksum(whole)) + whole[4:]


if __name__ == "__main__":
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.sendto(message(sys.argv[1], sys.argv[2], int(sys.argv[3])), (sys.argv[1], 0))
