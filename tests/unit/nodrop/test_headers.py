# SPDX-License-Identifier: GPL-2.0-only
"""Headers of dropped packets: flows, libpcap's filters, and the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodrop.errors import NodropError, UnsupportedError, UsageError
from nodrop.trace import pcap
from nodrop.trace.headers import BYTES, FIELDS, Flow, Headers, Packet, flow_of, parse_packet

LINES = {
    "udp 198.18.0.1:4000 198.18.0.2:9": (
        "28987c23d3 ffffffffc0675e81 47 800 10 30 30 4036f630000045 10012c65eb81140 "
        "900a00f020012c6 e5631c00 0 0 0 0"
    ),
    "udp [fd00::1]:4001 [fd00::2]:9": (
        "289a850956 ffffffffc0675e81 47 86dd 18 44 44 40111c00ed0c0f60 fd "
        "100000000000000 fd 200000000000000 7f61c000900a10f 0 0"
    ),
    "icmp 198.18.0.1 198.18.0.2": (
        "289e1cd484 ffffffffc0675e81 47 800 10 1c 1c 4065fd1c000045 10012c653b10140 "
        "fff70008020012c6 0 0 0 0 0"
    ),
    "udp 198.18.0.1 198.18.0.2": (
        "28a6a4fe05 ffffffffc0675e81 47 800 10 5dc 5dc b9207df6dc050045 10012c6b2d11140 "
        "20012c6 0 0 0 0 0"
    ),
    "tcp 198.18.0.1:4002 198.18.0.2:80": (
        "28ae305c99 ffffffffc0675e81 47 800 104 3c 3c 40294d3c000045 10012c66b610640 "
        "5000a20f020012c6 ab4c55d3 a4d1f0fa02a0 a080204b4050402 906bbd53 9030301"
    ),
}
"""What bpftrace 0.17 printed on Debian's 6.12; the last UDP packet is a later fragment."""
V6 = b"\x60\0\0\0\0\x14%c\x40" + ip_address("fd00::1").packed + ip_address("fd00::2").packed
PORTS = struct.pack("!HH", 4000, 9)


def text(flow: Flow | None) -> str:
    assert flow is not None
    return f"{flow.protocol_name} {flow.end_text(0)} {flow.end_text(1)}"


def packet_of(name: str) -> Packet:
    return parse_packet(LINES[name].split())


def test_recorded_packets() -> None:
    for name in LINES:
        packet = packet_of(name)
        assert text(flow_of(packet.header)) == name
        assert len(packet.header) == min(packet.length, BYTES)


def test_ipv6_extensions() -> None:
    """Ports are behind extension headers, and only in the first fragment."""
    plain = V6 % 17
    assert text(flow_of(plain + PORTS)) == "udp [fd00::1]:4000 [fd00::2]:9"
    options = b"\x06\x01" + bytes(14)
    assert text(flow_of(V6 % 0 + options + PORTS)) == "tcp [fd00::1]:4000 [fd00::2]:9"
    fragment = b"\x11\0%c%c\0\0\0\1"
    assert text(flow_of(V6 % 44 + fragment % (0, 1) + PORTS)) == "udp [fd00::1]:4000 [fd00::2]:9"
    assert text(flow_of(V6 % 44 + fragment % (5, 0xA9) + PORTS)) == "udp fd00::1 fd00::2"
    assert text(flow_of(V6 % 58 + PORTS)) == "icmp6 fd00::1 fd00::2"
    assert text(flow_of(V6 % 47 + PORTS)) == "47 fd00::1 fd00::2"
    assert text(flow_of(plain + PORTS[:3])) == "udp fd00::1 fd00::2"
    # An extension that ends beyond what was read.
    assert text(flow_of(V6 % 0 + b"\x06\xff" + bytes(22))) == "tcp fd00::1 fd00::2"


def test_no_header() -> None:
    for header in (b"", b"\x45" + bytes(18), V6[:39], b"\x44" + bytes(19), b"\x12" + bytes(63)):
        assert flow_of(header) is None
    fields = LINES["udp 198.18.0.1:4000 198.18.0.2:9"].split()
    protocol, offset, length, linear = range(3, 7)
    negative = f"{2**64 - 14:x}"
    # ARP, a header that was not set, behind the packet, and outside of the linear part.
    for index, value in ((protocol, "806"), (offset, "0"), (length, negative), (linear, negative)):
        changed = [*fields[:index], value, *fields[index + 1 :]]
        assert parse_packet(changed).header == b"", index
    with pytest.raises(ValueError, match="x"):
        parse_packet(["x"] * FIELDS)


def test_counts() -> None:
    """Of packets that match; one without an IP header has no flow, and is not written."""
    written: list[tuple[int, str]] = []
    headers = Headers(
        lambda packet: packet.reason != 3, lambda packet, why: written.append((packet.reason, why))
    )
    for reason, header in ((1, V6 % 17 + PORTS), (1, V6 % 17), (2, b""), (3, V6 % 17)):
        headers.add(Packet(0, 0xF, reason, 100, header), "FULL_RING")
    assert (headers.seen, headers.decoded, headers.filtered) == (4, 2, True)
    assert headers.sites == {(0xF, 1): 2, (0xF, 2): 1}
    assert sorted(map(text, headers.flows)) == [
        "udp [fd00::1]:4000 [fd00::2]:9",
        "udp fd00::1 fd00::2",
    ]
    assert written == [(1, "FULL_RING")] * 2


def test_number_of_flows_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodrop.trace.headers._FLOWS", 1)
    headers = Headers()
    for port in (1, 2, 1):
        header = V6 % 17 + struct.pack("!HH", port, 9)
        headers.add(Packet(0, 1, 1, 100, header), "")
    assert (headers.decoded, list(headers.flows.values())) == (3, [2])


def blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the kind and the body of each block of a pcapng file."""
    while data:
        kind, size = struct.unpack_from("=II", data)
        assert size % 4 == 0
        assert struct.unpack_from("=I", data, size - 4) == (size,)
        yield kind, data[8 : size - 4]
        data = data[size:]


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "drops.pcapng"
    file = pcap.PacketFile(str(path))
    packet = Packet(5, 1, 1, 1500, V6 % 17 + PORTS + b"x")
    file.write(packet, "FULL_RING")
    file.write(packet, "")
    file.close()
    assert file.packets == 2
    (section, _), (interface, description), (kind, body), (_, plain) = blocks(path.read_bytes())
    assert (section, interface, kind) == (0x0A0D0D0A, 1, 6)
    assert struct.unpack_from("=HHI", description) == (101, 0, BYTES)
    assert struct.unpack_from("=3xI", body[9:]) == (45,)
    assert struct.unpack_from("=I", body, 16) == (1500,)
    assert body[20:65] == packet.header
    assert b"FULL_RING" in body
    assert plain == body[: 20 + 48]
    for bad in (str(tmp_path), "/dev/full"):
        with pytest.raises(NodropError):
            pcap.PacketFile(bad).close()


def test_filter() -> None:
    try:
        pcap.pcap_filter("udp")
    except UnsupportedError:
        pytest.skip("libpcap is not installed")
    names = list(LINES)
    for expression, matching in (
        ("udp", [name for name in names if name.startswith("udp")]),
        ("port 9 and host 198.18.0.2", ["udp 198.18.0.1:4000 198.18.0.2:9"]),
        ("ip6", [name for name in names if "fd00" in name]),
        ("tcp[tcpflags] & tcp-syn != 0", [name for name in names if name.startswith("tcp")]),
        ("not net 198.18.0.0/15", [name for name in names if "fd00" in name]),
    ):
        matches = pcap.pcap_filter(expression)
        assert [name for name in names if matches(packet_of(name))] == matching, expression
    assert not pcap.pcap_filter("")(Packet(0, 0, 0, 100, b""))
    for wrong in ("nonsense(", "ether host 02:00:00:00:00:01", "port \udcff"):
        with pytest.raises(UsageError):
            pcap.pcap_filter(wrong)


def test_no_libpcap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcap, "_LIBRARIES", ("libnothing.so.0",))
    with pytest.raises(UnsupportedError):
        pcap.pcap_filter("udp")
