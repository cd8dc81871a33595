# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.guest.tunnels.pmtu FROM TO MTU``: tell a sender of a smaller MTU.

Sent from the far end, as a router on the way would: ICMP's "fragmentation needed", about an echo
reply that was never sent. Its route gets an exception, and all CPUs share an exception's route;
without one each has its own.
"""

from __future__ import annotations

import socket
import struct
import sys

from nodrop.guest.tunnels.kinds import checksum

_UNREACHABLE, _NEEDS_FRAGMENTATION = 3, 4


def message(sender: str, target: str, mtu: int) -> bytes:
    """Return the ICMP message about a packet of ``sender`` to ``target``.

    Args:
        mtu: bytes, of the link that the packet did not fit.
    """
    ends = socket.inet_aton(sender), socket.inet_aton(target)
    echo = bytes((0, 0, 0xFF, 0xFF, 0, 0, 0, 0))
    about = struct.pack("!BBHHHBBH", 0x45, 0, mtu + 100, 1, 0x4000, 64, socket.IPPROTO_ICMP, 0)
    head = struct.pack("!BBHHH", _UNREACHABLE, _NEEDS_FRAGMENTATION, 0, 0, mtu)
    whole = head + about + ends[0] + ends[1] + echo
    return whole[:2] + struct.pack("!H", checksum(whole)) + whole[4:]


def main(argv: list[str]) -> int:
    """Send it."""
    sender, target, mtu = argv
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.sendto(message(sender, target, int(mtu)), (sender, 0))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
