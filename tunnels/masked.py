# SPDX-License-Identifier: GPL-2.0-only
"""Convert frames to lines of text, and mask the fields that may differ between two kernels.

Only random values of the outermost headers are masked: the ID of an IPv4 header or IPv6
fragment, the source port that spreads a UDP tunnel's flows, checksums over these, ciphertext.
A word replaces each and says what must hold: which packets of a step share an ID or a port,
and whether a checksum is right.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from guestlib.packets import checksum, pseudo
from tunnels.links import AMT_PORT, FOU_PORT, GUE_PORT, SCTP_PORT, TIPC_PORT, LinkKind
from tunnels.packets import VNET

_SPREAD = frozenset((4789, 6081, 6635, FOU_PORT, GUE_PORT))
"""Destination ports of tunnels whose source port is a hash of the flow."""
_WIREGUARD, _OVPN = 51820, 1194
_CLEAR = {_WIREGUARD: 4, _OVPN: 8, SCTP_PORT: 4, TIPC_PORT: 4}
"""Port -> bytes after the UDP header that are not random."""
_AMT_DATA = 6
"""Type of AMT's messages that carry packets; the others have random nonces."""
_KEEPALIVE = 32
"""Payload of a WireGuard keepalive, bytes."""
_SCTP_BY_THE_CLOCK = (3, 4, 5)
"""Chunks that timers cause: SACK, HEARTBEAT and its ACK."""
_IGMP, _UDP, _GRE, _ESP, _ICMPV6, _FRAGMENT = 2, 17, 47, 50, 58, 44
_MLD_OR_ROUTER = (130, 131, 132, 133, 134, 143)
_DF, _MORE, _OFFSET = 0x4000, 0x2000, 0x1FFF
_LINK = 14
_IP = (b"\x08\x00", b"\x86\xdd")


@dataclass
class Masker:
    """Mask the frames of one step, which begin with an Ethernet header.

    Attributes:
        gso: the step sends a packet to be segmented.
    """

    kind: LinkKind
    gso: bool = False
    _names: dict[tuple[str, int], int] = field(default_factory=dict)
    _with_df: bool = False

    def line(self, frame: bytes, vnet: bytes) -> str:
        """Return a frame as text; equal frames give equal texts.

        Args:
            vnet: the frame's struct virtio_net_hdr.

        Returns:
            "" for a frame that a timer of the kernel sent.
        """
        if frame[12:14] not in _IP:
            return frame.hex()
        data, notes = bytearray(frame), list[str]()
        flags, gso, _, _, start, offset = VNET.unpack(vnet)
        if any(vnet):
            notes.append(vnet.hex())
        if flags & 1 and not gso:
            # Finish the partial checksum: outer checksums may cover it.
            value = checksum(bytes(data[start:])) or 0xFFFF
            struct.pack_into("!H", data, start + offset, value)
        at, proto, first, unfragmented = self._ip(data, notes)
        if not first:
            if self.kind.sealed:
                data[at:] = bytes(len(data) - at)
        elif proto == _UDP and len(data) > at + 8:
            unfinished = bool(flags & 1 and gso and start == at)
            if not self._udp(
                data, at, notes, unfragmented=unfragmented and not gso, unfinished=unfinished
            ):
                return ""
        elif proto == _ESP:
            data[at + 8 :] = bytes(len(data) - at - 8)
        elif proto == _GRE and gso and data[at] & 0x80:
            data[at + 4 : at + 8] = bytes(4)  # uninitialized: only segments get checksums
        elif proto == _IGMP or (proto == _ICMPV6 and data[at] in _MLD_OR_ROUTER):
            return ""
        return f"{data.hex()} {' '.join(notes)}"

    def _name(self, what: str, value: int) -> str:
        """Name a random number by the order of its first occurrence in the step."""
        return f"{what}#{self._names.setdefault((what, value), len(self._names))}"

    def _df(self, ident: int) -> str:
        """Return the word for IP_DF; that for the step's first such packet says if its ID is 0."""
        first, self._with_df = not self._with_df, True
        return f"{'gso-' * self.gso}df:{min(ident, 1)}" if first else "df"

    def _ip(self, data: bytearray, notes: list[str]) -> tuple[int, int, bool, bool]:
        """Mask an IP header.

        Returns:
            Offset and protocol of the next header, whether it is in this packet, and whether all of
            its payload is.
        """
        if data[_LINK] >> 4 == 4:
            size = (data[_LINK] & 15) * 4
            ident, fragment = struct.unpack_from("!HH", data, _LINK + 4)
            # Wrong for FOU and GUE: the far end has already subtracted the UDP header's length.
            right = checksum(bytes(data[_LINK : _LINK + size])) == 0
            notes.append("right" if right else "wrong")
            alone = fragment & _DF and not fragment & (_MORE | _OFFSET)
            notes.append(self._df(ident) if alone else self._name("id", ident))
            data[_LINK + 4 : _LINK + 6] = data[_LINK + 10 : _LINK + 12] = bytes(2)
            first, more = not fragment & _OFFSET, fragment & _MORE
            return _LINK + size, data[_LINK + 9], first, first and not more
        proto, at, first, unfragmented = data[_LINK + 6], _LINK + 40, True, True
        while first and proto in (0, 43, 60, _FRAGMENT) and len(data) >= at + 8:
            size = 8 * (data[at + 1] + 1)
            if proto == _FRAGMENT:
                fragment, ident = struct.unpack_from("!HI", data, at + 2)
                notes.append(self._name("id", ident))
                data[at + 4 : at + 8] = bytes(4)
                first, unfragmented, size = fragment < 8, False, 8
            proto, at = data[at], at + size
        return at, proto, first, unfragmented

    def _udp(
        self, data: bytearray, at: int, notes: list[str], *, unfragmented: bool, unfinished: bool
    ) -> bool:
        """Mask a UDP header and encrypted payload; return False if a timer sent the packet."""
        source, target = struct.unpack_from("!HH", data, at)
        value = bytes(data[at + 6 : at + 8])
        if not unfinished and value != bytes(2):
            body = bytes(data[at:])
            total = checksum(pseudo(bytes(data[_LINK:]), _UDP, len(body)) + body)
            notes.append("there" if not unfragmented else "wrong" if total else "right")
            data[at + 6 : at + 8] = b"\xff\xff"
        if target in _SPREAD:
            notes.append(self._name("port", source))
            data[at : at + 2] = bytes(2)
        elif clear := _CLEAR.get(target):
            inside, kind = len(data) - at - 8, data[at + 8]
            if target == SCTP_PORT and data[at + 20] in _SCTP_BY_THE_CLOCK:
                return False
            if target == _WIREGUARD and (kind != 4 or inside <= _KEEPALIVE):
                return False
            data[at + 8 + clear :] = bytes(max(0, inside - clear))
        elif source == AMT_PORT:
            return data[at + 8] == _AMT_DATA
        return True
