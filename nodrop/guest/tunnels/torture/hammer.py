# SPDX-License-Identifier: GPL-2.0-only
"""What changes faster than a process can be started: routes, and ICMP errors about them."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import suppress

from nodrop.guest.netlink import CREATE, REPLACE, attribute
from nodrop.guest.tunnels.torture import place
from nodrop.guest.tunnels.torture.netlink import ROUTE, Netlink
from nodrop.guest.tunnels.torture.traffic import Body, Counts
from nodrop.guest.tunnels.torture.victims import ESP, GRE, UDP, Victim

NEWROUTE, DELROUTE = 24, 25
UNICAST, BLACKHOLE, UNREACHABLE, PROHIBIT = 1, 6, 7, 8
_ROUTE = struct.Struct("=8BI")
_DST, _OIF, _GATEWAY, _METRICS, _PREFSRC = 1, 4, 5, 8, 7
_MAIN, _BOOT, _LINK = 254, 3, 0
_MTU_METRIC, _LOCK_METRIC = 2, 1
_PAUSES_S = (0.0, 0.0, 0.0, 0.001, 0.01)
_IPPROTO_ICMP, _IPPROTO_ICMPV6 = 1, 58
_MTUS = (68, 552, 576, 900, 1280, 1400)


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def route(six: bool, what: int, gate: int, mtu: int = 0) -> bytes:
    """Return the body of a request about the route to the far end.

    Args:
        what: UNICAST, BLACKHOLE ...
        gate: of place.GATE4; for UNICAST.
        mtu: bytes, locked; 0: the device's.
    """
    family = socket.AF_INET6 if six else socket.AF_INET
    bits = 128 if six else 32
    body = _ROUTE.pack(family, bits, 0, 0, _MAIN, _BOOT, _LINK, what, 0)
    body += attribute(_DST, socket.inet_pton(family, place.THERE6 if six else place.THERE4))
    if what == UNICAST:
        address = (place.GATE6 if six else place.GATE4)[gate]
        body += attribute(_GATEWAY, socket.inet_pton(family, address))
        source = place.HERE6 if six else place.HERE4
        body += attribute(_PREFSRC, socket.inet_pton(family, source))
        body += _u32(_OIF, socket.if_nametoindex(place.GATE_DEVICE[gate]))
    if mtu:
        metrics = _u32(_MTU_METRIC, mtu) + _u32(_LOCK_METRIC, 1 << _MTU_METRIC)
        body += attribute(_METRICS, metrics)
    return body


def routes(six: bool, value: int) -> Body:
    """Change the route to the far end as fast as it goes; most of the time there is one."""

    def body(counts: Counts, number: int) -> None:
        chance = random.Random(f"{value}/routes")
        done = failed = 0
        with Netlink(ROUTE) as netlink:
            while True:
                action = chance.choice(("other", "other", "other", "mtu", "bad", "gone"))
                gate = chance.randrange(3)
                try:
                    if action == "gone":
                        netlink.request(
                            DELROUTE,
                            0,
                            route(six, UNICAST, gate)[
                                : _ROUTE.size + 20 if six else _ROUTE.size + 8
                            ],
                        )
                    else:
                        what = UNICAST
                        if action == "bad":
                            what = chance.choice((BLACKHOLE, UNREACHABLE, PROHIBIT))
                        mtu = chance.choice(_MTUS) if action == "mtu" else 0
                        flags = CREATE | REPLACE
                        netlink.request(NEWROUTE, flags, route(six, what, gate, mtu))
                    done += 1
                except OSError:
                    failed += 1
                counts.put(number, done, failed)
                if action in ("bad", "gone"):
                    with suppress(OSError):
                        netlink.request(NEWROUTE, CREATE | REPLACE, route(six, UNICAST, gate))
                time.sleep(chance.choice(_PAUSES_S))

    return body


def checksum(data: bytes) -> int:
    """Return the Internet checksum."""
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _payload(victim: Victim, protocol: int) -> bytes:
    if protocol == UDP:
        return struct.pack("!4H", victim.port, victim.port, 100, 0)
    if protocol == GRE:
        return struct.pack("!HHI", 0, 0x0800, 0)
    if protocol == ESP:
        return struct.pack("!II", 0x100, 1)
    return bytes(8)


def _offending(victim: Victim, protocol: int) -> bytes:
    """The beginning of a packet of the tunnel, which an error is about."""
    data = _payload(victim, protocol)
    if victim.outer6:
        head = struct.pack("!IHBB", 6 << 28, 200, protocol, 64)
        head += socket.inet_pton(socket.AF_INET6, place.HERE6)
        return head + socket.inet_pton(socket.AF_INET6, place.THERE6) + data + bytes(8)
    ends = socket.inet_aton(place.HERE4) + socket.inet_aton(place.THERE4)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 200, 0, 0x4000, 64, protocol, 0) + ends
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + data


def _error(victim: Victim, chance: random.Random) -> tuple[bytes, int]:
    """Return an ICMP error and which gateway it is to come from."""
    protocol = chance.choice((victim.protocol, victim.protocol, victim.protocol, ESP))
    about = _offending(victim, protocol)
    gate = chance.randrange(2)
    what = chance.choice(("mtu", "mtu", "mtu", "redirect", "unreachable"))
    mtu = chance.choice(_MTUS)
    if victim.outer6:
        # A redirect would have to come from a gateway with a link-local address.
        kind, code, word = (1, chance.randrange(5), 0) if what == "unreachable" else (2, 0, mtu)
        return struct.pack("!BBHI", kind, code, 0, word) + about, gate
    if what == "redirect":
        head = struct.pack("!BBH", 5, 1, 0) + socket.inet_aton(place.GATE4[1 - gate])
    elif what == "mtu":
        head = struct.pack("!BBHHH", 3, 4, 0, 0, mtu)
    else:
        head = struct.pack("!BBHI", 3, chance.choice((0, 1, 2, 5, 13)), 0, 0)
    data = head + about
    return data[:2] + struct.pack("!H", checksum(data)) + data[4:], gate


def errors(victim: Victim, value: int) -> Body:
    """Send ICMP errors about the tunnel's packets, from the far end."""

    def body(counts: Counts, number: int) -> None:
        chance = random.Random(f"{value}/errors")
        six = victim.outer6
        family = socket.AF_INET6 if six else socket.AF_INET
        protocol = _IPPROTO_ICMPV6 if six else _IPPROTO_ICMP
        done = failed = 0
        while True:
            data, gate = _error(victim, chance)
            try:
                # A gateway's address comes and goes: a socket for each.
                with socket.socket(family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as raw:
                    raw.bind(((place.GATE6 if six else place.GATE4)[gate], 0))
                    raw.sendto(data, (place.HERE6 if six else place.HERE4, 0))
                done += 1
            except OSError:
                failed += 1
            counts.put(number, done, failed)
            time.sleep(chance.choice(_PAUSES_S) + 0.0005)

    return body
