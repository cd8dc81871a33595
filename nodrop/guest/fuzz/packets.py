# SPDX-License-Identifier: GPL-2.0-only
"""What programs write and send: the beginnings of packets, filled up to any size."""

from __future__ import annotations

import random
import struct

_MAC = bytes.fromhex("020000000001 020000000002")
_UDP = struct.pack(">HHHH", 9, 9, 0, 0)
_TCP = struct.pack(">HHIIBBHHH", 9, 9, 1, 1, 0x50, 0x10, 1000, 0, 0)
_NO_GSO = bytes(10)
_VNET_MRG = bytes(12)


def _ip4(protocol: int, rest: bytes, size: int) -> bytes:
    length = max(20 + len(rest), min(size, 0xFFFF))
    head = struct.pack(">BBHHHBBH", 0x45, 0, length, 1, 0, 64, protocol, 0)
    address = bytes((10, 9, 0, 2)) + bytes((10, 9, 0, 1))
    total = sum(struct.unpack(">10H", head + address))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + address + rest


def _ip6(size: int) -> bytes:
    length = max(8, min(size - 40, 0xFFFF))
    address = bytes.fromhex("fd000000000000000000000000000002 fd000000000000000000000000000001")
    return struct.pack(">IHBB", 6 << 28, length & 0xFFFF, 17, 64) + address + _UDP


def _vnet(flags: int, gso: int, header: int, gso_size: int, start: int, offset: int) -> bytes:
    """A struct virtio_net_hdr."""
    return struct.pack("<BBHHHH", flags, gso, header, gso_size, start, offset)


def _beginning(kind: str, size: int) -> bytes:
    ip4, tcp = _ip4(17, _UDP, size), _ip4(6, _TCP, size)
    ether4 = _MAC + b"\x08\x00" + ip4
    ways = {
        "zero": bytes(1),
        "ones": b"\xff" * 64,
        "ip4": ip4,
        "ip6": _ip6(size),
        "eth4": ether4,
        "eth6": _MAC + b"\x86\xdd" + _ip6(size),
        "vlan4": _MAC + b"\x81\x00\x00\x07\x08\x00" + ip4,
        "arp": b"\xff" * 6 + _MAC[6:] + b"\x08\x06" + bytes.fromhex("0001080006040001"),
        "pi4": b"\x00\x00\x08\x00" + ip4,
        "vnet-ip4": _NO_GSO + ip4,
        "vnet-eth4": _NO_GSO + ether4,
        "mrg-eth4": _VNET_MRG + ether4,
        # To be cut into segments: by TCP, by UDP; checksums to be filled in.
        "gso-tcp4": _vnet(1, 1, 40, 100, 20, 16) + tcp,
        "gso-udp4": _vnet(1, 5, 28, 100, 20, 6) + ip4,
        "gso-eth4": _vnet(1, 1, 54, 100, 34, 16) + _MAC + b"\x08\x00" + tcp,
        "gso-bad": _vnet(1, 3, 0xFFFF, 1, 0xFFF0, 0xFFF0) + ip4,
        "csum-bad": _vnet(1, 0, 0, 0, 60, 4000) + ether4,
    }
    if kind == "noise":
        return random.Random(size).randbytes(min(size, 256))
    return ways[kind]


KINDS = (
    *("zero", "ones", "noise", "ip4", "ip6", "eth4", "eth6", "vlan4", "arp", "pi4"),
    *("vnet-ip4", "vnet-eth4", "mrg-eth4"),
    *("gso-tcp4", "gso-udp4", "gso-eth4", "gso-bad", "csum-bad"),
)
SIZES = (
    *(0, 1, 3, 4, 9, 10, 12, 13, 14, 20, 28, 34, 42, 60, 64, 100, 128, 500, 1000, 1500, 1514),
    *(1600, 4095, 4096, 4097, 9000, 16384, 65521, 65535, 65536, 70000),
)


def content(kind: str, size: int) -> bytes:
    """Return so many bytes that begin like a kind."""
    start = _beginning(kind, size)[:size]
    return start + b"\xa5" * (size - len(start))
