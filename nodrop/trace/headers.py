# SPDX-License-Identifier: GPL-2.0-only
"""Headers of dropped packets, and their flows."""

from __future__ import annotations

import ipaddress
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

BYTES = 64
"""Bytes of a header that are read, from the IP header on: IPv6 and TCP without options are 60."""
WORDS = BYTES // 8
_WORDS = struct.Struct(f"={WORDS}Q")
_FLOWS = 10_000
"""Number of flows that are told apart."""
_IPV4, _IPV6 = 0x0800, 0x86DD
_NAMES = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmp6", 132: "sctp", 136: "udplite"}
_WITH_PORTS = (6, 17, 33, 132, 136)
_FRAGMENT = 44
_EXTENSIONS = (0, 43, _FRAGMENT, 60)
"""IPv6 headers before the transport header: hop-by-hop, routing, fragment, destination."""


class Flow(NamedTuple):
    """The 5-tuple of a packet.

    Attributes:
        protocol: its number.
        source, destination: addresses, 4 or 16 bytes.
        ports: source and destination port; None: the protocol has none, the packet is a later
            fragment, or its IP header is too long.
    """

    protocol: int
    source: bytes
    destination: bytes
    ports: tuple[int, int] | None

    @property
    def protocol_name(self) -> str:
        return _NAMES.get(self.protocol, str(self.protocol))

    def end(self, index: int) -> tuple[str, int | None]:
        """Return address and port of the source (0) or the destination (1)."""
        address = str(ipaddress.ip_address((self.source, self.destination)[index]))
        return address, self.ports[index] if self.ports else None

    def end_text(self, index: int) -> str:
        address, port = self.end(index)
        if port is None:
            return address
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def flow_of(header: bytes) -> Flow | None:
    """Return the flow of a packet that begins with its IP header; None: that is incomplete."""
    version = header[0] >> 4 if header else 0
    if version == 4 and len(header) >= 20:
        size = 4 * (header[0] & 0xF)
        protocol, source, destination = header[9], header[12:16], header[16:20]
        later = struct.unpack_from("!H", header, 6)[0] & 0x1FFF != 0
        return _flow(header, size, protocol, source, destination, later) if size >= 20 else None
    if version == 6 and len(header) >= 40:
        size, later = 40, False
        protocol, source, destination = header[6], header[8:24], header[24:40]
        while protocol in _EXTENSIONS and not later and len(header) >= size + 8:
            fragment = protocol == _FRAGMENT
            later = fragment and struct.unpack_from("!H", header, size + 2)[0] & 0xFFF8 != 0
            protocol = header[size]
            size += 8 if fragment else 8 * (header[size + 1] + 1)
        return _flow(header, size, protocol, source, destination, later)
    return None


def _flow(
    header: bytes, size: int, protocol: int, source: bytes, destination: bytes, later: bool
) -> Flow:
    ports = None
    if protocol in _WITH_PORTS and not later and len(header) >= size + 4:
        ports = struct.unpack_from("!HH", header, size)
    return Flow(protocol, source, destination, ports)


class Packet(NamedTuple):
    """A dropped packet.

    Attributes:
        time_ns: time of CLOCK_BOOTTIME.
        location: address of the kernel's code that dropped it.
        reason: number of the kernel's reason.
        length: its bytes from the IP header on.
        header: at most BYTES of them; b"": the packet is not IP, or has no IP header there.
    """

    time_ns: int
    location: int
    reason: int
    length: int
    header: bytes


FIELDS = 7 + WORDS


def parse_packet(fields: Sequence[str]) -> Packet:
    """Return the packet of a line of FIELDS hexadecimal numbers.

    These are time, location, reason, protocol, offset of the network header from the buffer's
    start, bytes from there to the packet's end, those in its linear part, and the first BYTES as
    words of this machine's byte order.

    Raises:
        ValueError: a field is not a number.
    """
    time_ns, location, reason, protocol, offset, length, linear, *words = (
        int(field, 16) for field in fields
    )
    length, linear = (value - (value >> 63 << 64) for value in (length, linear))
    header = _WORDS.pack(*words)[: max(min(linear, length), 0)]
    # The offset is 0 until the kernel has found the header, and may be that of another protocol.
    known = offset and header and {4: _IPV4, 6: _IPV6}.get(header[0] >> 4) == protocol
    return Packet(time_ns, location, reason, length, header if known else b"")


class Headers:
    """The dropped packets whose headers were read.

    Args:
        matches: filter; None: all match.
        write: called with a packet that matches, and the kernel's name of its reason.

    Attributes:
        seen: number of packets, including those that do not match.
        sites: number of matching packets by location and reason, as in Packet.
        flows: number of matching packets of each of the first _FLOWS flows.
        decoded: number of matching packets with an IP header.
    """

    def __init__(
        self,
        matches: Callable[[Packet], bool] | None = None,
        write: Callable[[Packet, str], None] | None = None,
    ) -> None:
        self.filtered = matches is not None
        self._matches = matches
        self._write = write
        self.seen = self.decoded = 0
        self.sites: Counter[tuple[int, int]] = Counter()
        self.flows: Counter[Flow] = Counter()

    def add(self, packet: Packet, reason: str) -> None:
        """Count a packet; ``reason``: the kernel's name of its reason."""
        self.seen += 1
        if self._matches and not self._matches(packet):
            return
        self.sites[packet.location, packet.reason] += 1
        flow = flow_of(packet.header)
        if flow is None:
            return
        self.decoded += 1
        if flow in self.flows or len(self.flows) < _FLOWS:
            self.flows[flow] += 1
        if self._write:
            self._write(packet, reason)
