# SPDX-License-Identifier: GPL-2.0-only
"""A frame without what two kernels may fill in differently, and whether that was right.

Masked are only: the ID of an IPv4 header that a kernel made (a keyed hash, whose key is random),
the source port by which a UDP tunnel spreads its flows (the same), what a cipher made, what a TCP
connection chooses for itself, and checksums, whose correctness is told instead.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from nodrop.guest.tunnels.kinds import (
    FOU_PORT,
    GUE_PORT,
    IPV4,
    IPV6,
    SCTP_PORT,
    TIPC_PORT,
    Kind,
    checksum,
)
from nodrop.guest.tunnels.packets import NEEDS_CSUM, Vnet, pseudo
from nodrop.guest.tunnels.wire import Seen

_SPREAD = frozenset((4789, 6081, 6635, FOU_PORT, GUE_PORT))
"""Destination ports of tunnels whose source port comes from the flow's hash."""
_WIREGUARD, _OVPN = 51820, 1194
_FIXED = frozenset((_WIREGUARD, _OVPN, SCTP_PORT, TIPC_PORT))
"""Ports of those that use one for both ends."""
_KEEPALIVE = 32
"""Bytes of a packet of wireguard that carries nothing."""
_IPIP, _TCP, _UDP, _IPV6, _GRE, _ESP = 4, 6, 17, 41, 47, 50
_ICMP, _ICMPV6 = 1, 58
_FRAGMENT = 44
_ETHERNET = (0x6558, 0x88BE, 0x22EB)
_DF, _MF = 0x4000, 0x2000


@dataclass
class Masked:
    """A frame to be compared.

    Attributes:
        data: the frame, masked bytes are zero.
        vnet: what is not finished yet.
        remarks: what was masked, and what it has to be: a checksum that is right, say.
        ids: of an outermost IPv4 header: (ID, DF, MF or an offset, segments).
        ports: source ports that come from a hash.
        numbers: GRE's sequence numbers.
        timed: the clock made it be sent, not the step.
    """

    data: bytearray
    vnet: Vnet
    remarks: list[str] = field(default_factory=list)
    ids: list[tuple[int, bool, bool, int]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    timed: bool = False

    def text(self) -> str:
        """Return it as one line: equal lines are equal frames."""
        return f"{self.vnet} {self.data.hex()} {' '.join(self.remarks)}"


class Masker:
    """Masks frames of one kind of tunnel.

    Args:
        own: the IPv4 IDs inside are the recorder's own and have to stay as they are.
        own_headers: the kernel made so many headers around them.
    """

    def __init__(self, kind: Kind, *, own: bool) -> None:
        self._kind = kind
        self._own = own

    def frame(self, seen: Seen, *, link: bool) -> Masked:
        """Mask a frame that begins with an Ethernet header, or with an IP header."""
        made = Masked(bytearray(seen.data), seen.vnet)
        self._finish(made)
        if link:
            self._ethernet(made, 0, 0)
        else:
            self._ip(made, 0, 0)
        return made

    @staticmethod
    def _finish(made: Masked) -> None:
        """Fill in the checksum that the device would: others may span it."""
        vnet = made.vnet
        if vnet.flags & NEEDS_CSUM:
            at = vnet.start + vnet.offset
            made.remarks.append(f"partial {made.data[at : at + 2].hex()}")
            if vnet.gso_type == 0:
                value = checksum(bytes(made.data[vnet.start :])) or 0xFFFF
                struct.pack_into("!H", made.data, at, value)

    def _ethernet(self, made: Masked, at: int, depth: int) -> None:
        if len(made.data) < at + 14:
            return
        protocol = struct.unpack_from("!H", made.data, at + 12)[0]
        if protocol in (IPV4, IPV6):
            self._ip(made, at + 14, depth)

    def _ip(self, made: Masked, at: int, depth: int) -> None:
        if len(made.data) < at + 20:
            return
        if made.data[at] >> 4 == 4:
            self._ip4(made, at, depth)
        elif made.data[at] >> 4 == 6 and len(made.data) >= at + 40:
            self._ip6(made, at, depth)

    def _ip4(self, made: Masked, at: int, depth: int) -> None:
        data = made.data
        size = (data[at] & 15) * 4
        total, ident, fragment = struct.unpack_from("!HHH", data, at + 2)
        header = bytes(data[at : at + size])
        inside = depth > 0
        if not (inside and self._own):
            made.remarks.append(f"ip4@{at} {'right' if checksum(header) == 0 else 'wrong'}")
            segments = made.vnet.gso_size and -(-total // made.vnet.gso_size)
            if not inside:
                made.ids.append((ident, bool(fragment & _DF), bool(fragment & 0x3FFF), segments))
            data[at + 4 : at + 6] = bytes(2)
            data[at + 10 : at + 12] = bytes(2)
        whole = not fragment & 0x3FFF
        offset = fragment & 0x1FFF
        if not offset:
            self._above(made, at, at + size, data[at + 9], depth, whole)
        elif self._kind.sealed:
            self._seal(made, at + size, 0)

    def _ip6(self, made: Masked, at: int, depth: int) -> None:
        data = made.data
        proto, where, whole = data[at + 6], at + 40, True
        while proto in (0, 60, 43, _FRAGMENT) and len(data) >= where + 8:
            if proto == _FRAGMENT:
                offset = struct.unpack_from("!H", data, where + 2)[0]
                if depth == 0 or not self._own:
                    made.remarks.append(f"fragment@{where}")
                    data[where + 4 : where + 8] = bytes(4)
                if offset & 0xFFF8:
                    if self._kind.sealed:
                        self._seal(made, where + 8, 0)
                    return
                whole = not offset & 1
                proto, where = data[where], where + 8
                continue
            proto, where = data[where], where + 8 * (data[where + 1] + 1)
        self._above(made, at, where, proto, depth, whole)

    def _above(
        self, made: Masked, ip_at: int, at: int, proto: int, depth: int, whole: bool
    ) -> None:
        """What an IP header carries."""
        if proto == _UDP:
            self._udp(made, ip_at, at, depth, whole)
        elif proto in (_IPIP, _IPV6):
            self._ip(made, at, depth + 1)
        elif proto == _GRE:
            self._gre(made, at, depth)
        elif proto == _ESP:
            made.remarks.append(f"esp@{at}")
            made.data[at + 8 :] = bytes(len(made.data) - at - 8)
        elif proto == _TCP and not self._own:
            self._tcp(made, ip_at, at, whole)
        elif proto in (_ICMP, _ICMPV6) and not (depth and self._own):
            self._icmp(made, ip_at, at, proto, depth)

    def _udp(self, made: Masked, ip_at: int, at: int, depth: int, whole: bool) -> None:
        data = made.data
        if len(data) <= at + 8:
            return
        source, target = struct.unpack_from("!HH", data, at)
        # A source port from a hash may be anybody's.
        port = source if source in _FIXED and target not in _SPREAD else target
        tunnel = port in _SPREAD or port in _FIXED
        if tunnel or not (depth and self._own):
            self._sum(made, ip_at, at, 6, _UDP, whole)
        if not tunnel:
            return
        if port in _SPREAD:
            made.ports.append(source)
            data[at : at + 2] = bytes(2)
        if port == _WIREGUARD:
            # A handshake, or a packet without content: the clock asks for both. After a
            # handshake the counter begins anew.
            made.timed = data[at + 8] != 4 or len(data) <= at + 8 + _KEEPALIVE
            self._seal(made, at + 8, 4)
        elif port == _OVPN:
            self._seal(made, at + 8, 8)
        elif port == SCTP_PORT:
            self._chunks(made, at + 8)
        elif port == TIPC_PORT:
            self._seal(made, at + 8, 4)
        elif port in (4789, 6081):
            self._overlay(made, at + 8, port, depth)
        elif port == GUE_PORT:
            if data[at + 8] >> 6 == 0:
                head = 4 + 4 * (data[at + 8] & 31)
                self._above(made, at, at + 8 + head, data[at + 9], depth, whole)
        elif self._kind.link.startswith("gre"):
            self._gre(made, at + 8, depth)
        else:
            self._ip(made, at + 8, depth + 1)

    def _overlay(self, made: Masked, at: int, port: int, depth: int) -> None:
        options = (made.data[at] & 63) * 4 if port == 6081 and len(made.data) > at else 0
        self._ethernet(made, at + 8 + options, depth + 1)

    def _gre(self, made: Masked, at: int, depth: int) -> None:
        data = made.data
        if len(data) < at + 4:
            return
        flags, protocol = struct.unpack_from("!HH", data, at)
        where = at + 4
        if flags & 0x8000:
            # It spans what is masked inside.
            good = checksum(bytes(data[at:])) == 0
            if not made.vnet.gso_type and not made.vnet.flags:
                made.remarks.append(f"gre@{at} {'right' if good else 'wrong'}")
            data[where : where + 2] = bytes(2)
            where += 4
        where += 4 if flags & 0x2000 else 0
        if flags & 0x1000 and len(data) >= where + 4:
            # What a device sent by itself when it came up has a number as well.
            made.numbers.append(struct.unpack_from("!I", data, where)[0])
            data[where : where + 4] = bytes(4)
            where += 4
        if protocol in _ETHERNET:
            where += {0x88BE: 8 if flags & 0x1000 else 0, 0x22EB: 12}.get(protocol, 0)
            if protocol == 0x22EB:  # ERSPAN's second version has a time stamp
                data[where - 8 : where - 4] = bytes(4)
            self._ethernet(made, where, depth + 1)
        elif protocol in (IPV4, IPV6):
            self._ip(made, where, depth + 1)

    @staticmethod
    def _seal(made: Masked, at: int, kept: int) -> None:
        """Mask a cipher's output: all but the first bytes."""
        made.remarks.append(f"sealed@{at}")
        made.data[at + kept :] = bytes(max(0, len(made.data) - at - kept))

    @staticmethod
    def _chunks(made: Masked, at: int) -> None:
        """SCTP: tags, numbers, cookies and the checksum are random, or follow from it."""
        data = made.data
        data[at + 4 : at + 12] = bytes(8)
        where = at + 12
        while where + 4 <= len(data):
            size = max(4, struct.unpack_from("!H", data, where + 2)[0])
            made.remarks.append(f"chunk@{where}")
            end = min(where + size, len(data))
            if data[where] != 0:
                data[where + 4 : end] = bytes(max(0, end - where - 4))
            else:
                data[where + 4 : where + 8] = bytes(4)
            where += (size + 3) & ~3

    def _tcp(self, made: Masked, ip_at: int, at: int, whole: bool) -> None:
        data = made.data
        if len(data) < at + 20:
            return
        self._sum(made, ip_at, at, 16, _TCP, whole)
        data[at + 4 : at + 12] = bytes(8)
        made.remarks.append(f"tcp@{at}")
        where, end = at + 20, at + (data[at + 12] >> 4) * 4
        while where < end and data[where]:
            if data[where] == 1:
                where += 1
                continue
            size = max(2, data[where + 1])
            if data[where] in (5, 8):  # SACK, time stamps
                data[where + 2 : where + size] = bytes(size - 2)
            where += size

    def _icmp(self, made: Masked, ip_at: int, at: int, proto: int, depth: int) -> None:
        data = made.data
        if len(data) < at + 8:
            return
        if proto == _ICMP:
            good = checksum(bytes(data[at:])) == 0
        else:
            body = bytes(data[at:])
            good = checksum(pseudo(bytes(data[ip_at:]), proto, len(body)) + body) == 0
        made.remarks.append(f"icmp@{at} {'right' if good else 'wrong'}")
        data[at + 2 : at + 4] = bytes(2)
        error = data[at] in (3, 5, 11, 12) if proto == _ICMP else data[at] < 128
        if error and not self._own:
            # It quotes a packet whose ID a kernel chose.
            self._ip(made, at + 8, depth)

    def _sum(self, made: Masked, ip_at: int, at: int, offset: int, proto: int, whole: bool) -> None:
        """Say whether a checksum is right, and mask it."""
        data = made.data
        where = at + offset
        if len(data) < where + 2:
            return
        vnet = made.vnet
        if vnet.flags & NEEDS_CSUM and vnet.start == at and vnet.gso_type:
            return  # the pseudo header's: nothing random is in it
        value = bytes(data[where : where + 2])
        if value == bytes(2):
            told = "none"
        elif not whole or vnet.gso_type:
            told = "there"
        else:
            body = bytes(data[at:])
            good = checksum(pseudo(bytes(data[ip_at:]), proto, len(body)) + body) in (0, 0xFFFF)
            told = "right" if good else "wrong"
        made.remarks.append(f"sum@{at} {told}")
        data[where : where + 2] = bytes(2)
