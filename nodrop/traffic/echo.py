# SPDX-License-Identifier: GPL-2.0-only
"""Round trips of ICMP echo requests (RFC 792, RFC 4443)."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from contextlib import suppress

from nodrop.traffic.sockets import Address, connected

INTERVAL_S = 0.01
"""Time between two requests, seconds."""
WAIT_S = 1.0
"""Time that the replies may take after the last request, seconds."""
_HEAD = struct.Struct("!BBHHH")
_PADDING = bytes(48)
_REQUEST = {4: 8, 6: 128}
_REPLY = {4: 0, 6: 129}


def request(version: int, identifier: int, number: int) -> bytes:
    """Return an echo request; the kernel fills in the checksum of ICMPv6.

    Args:
        version: of IP.
        number: its sequence number, 16 bits.
    """
    data = _HEAD.pack(_REQUEST[version], 0, 0, identifier, number) + _PADDING
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return bytes(data[:2] + checksum.to_bytes(2, "big") + data[4:])


def reply(version: int, identifier: int, packet: bytes) -> int | None:
    """Return the sequence number of an echo reply; None: another packet.

    Args:
        packet: as a raw socket reads it, in IPv4 with the IP header.
    """
    message = packet[(packet[0] & 15) * 4 :] if version == 4 and packet else packet
    if len(message) < _HEAD.size:
        return None
    kind, code, _, came, number = _HEAD.unpack_from(message)
    return int(number) if (kind, code, came) == (_REPLY[version], 0, identifier) else None


def round_trips(ifindex: int, address: Address, seconds: float) -> list[float | None]:
    """Send requests for a time, one each INTERVAL_S, and wait at most WAIT_S for the last replies.

    Args:
        seconds: at most 600.

    Returns:
        The round trip of each request, ms; None: no reply.

    Raises:
        OSError: there is no such device, or no permission (EPERM).
    """
    version = address.version
    protocol = socket.IPPROTO_ICMP if version == 4 else socket.IPPROTO_ICMPV6
    identifier = int.from_bytes(os.urandom(2), "big")
    sent: list[float] = []
    trips: list[float | None] = []
    with connected(ifindex, address, socket.SOCK_RAW, protocol) as sock:
        sock.setblocking(False)
        due = time.monotonic()
        last = due + seconds
        while (now := time.monotonic()) < last or (None in trips and now < last + WAIT_S):
            if due <= now < last:
                # A device that is busy or gone refuses it: it counts as lost.
                with suppress(OSError):
                    sock.send(request(version, identifier, len(sent)))
                sent.append(now)
                trips.append(None)
                due = max(due + INTERVAL_S, now)
            until = min(due, last) if now < last else last + WAIT_S
            if not select.select([sock], [], [], max(until - time.monotonic(), 0))[0]:
                continue
            with suppress(OSError):  # such as an ICMP error
                number = reply(version, identifier, sock.recv(2048))
                if number is not None and number < len(trips) and trips[number] is None:
                    trips[number] = (time.monotonic() - sent[number]) * 1e3
    return trips
