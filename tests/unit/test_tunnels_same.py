# SPDX-License-Identifier: GPL-2.0-only
"""Two kernels' recordings of a tunnel: what may differ, and that nothing else may."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from nodrop.guest.tunnels import same
from nodrop.guest.tunnels.kinds import HERE4, KINDS, MAC, THERE4, checksum
from nodrop.guest.tunnels.packets import UDP, Vnet, few, fitting, ip4, large, summed, udp

LINK = MAC + bytes(6) + b"\x08\x00"
OUTER = 14
SOURCE_PORT = OUTER + 20


def outer(ident: int, port: int, inside: bytes, *, df: bool = False, ttl: int = 64) -> bytes:
    """A vxlan packet on the wire, with a checksum over all."""
    data = struct.pack("!4H", port, 4789, 16 + len(inside), 0) + bytes((8, 0, 0, 0, 0, 0, 1, 0))
    packet = ip4(data + inside, fragment=0x4000 if df else 0, ttl=ttl, source=HERE4, target=THERE4)
    packet = packet[:4] + struct.pack("!H", ident) + packet[6:10] + bytes(2) + packet[12:]
    packet = packet[:10] + struct.pack("!H", checksum(packet[:20])) + packet[12:]
    return LINK + summed(packet, 20, 6, UDP)


def record(*frames: bytes, name: str = "put 4 size 28", **changes: Any) -> dict[str, Any]:
    step = {
        "name": name,
        "results": [""],
        "out": [[Vnet().pack().hex(), frame.hex()] for frame in frames],
        "back": [],
        "forwarded-back": [],
        "counters": {"Ip:OutRequests": 1},
        **changes,
    }
    first = {**step, "name": "first", "out": [], "counters": {"Ip:OutRequests": 0}}
    return {"type": "vxlan", "steps": [first, step], "far": {"far.packets": 1}}


INSIDE = LINK + ip4(udp(64))
STOCK = record(outer(77, 40001, INSIDE))


def test_id_and_port_may_differ() -> None:
    assert not same.differences(STOCK, record(outer(78, 50002, INSIDE)))
    assert not same.differences(STOCK, record(outer(78, 1194, INSIDE)))


def changed(at: int, value: int = 0xFF) -> Callable[[], dict[str, Any]]:
    def change() -> dict[str, Any]:
        frame = bytearray(outer(77, 40001, INSIDE))
        frame[at] ^= value
        return record(bytes(frame))

    return change


OTHERS: tuple[Callable[[], dict[str, Any]], ...] = (
    changed(0),
    changed(OUTER + 1, 0x02),
    changed(OUTER + 10),
    changed(SOURCE_PORT + 6),
    changed(SOURCE_PORT + 3, 1),
    changed(SOURCE_PORT + 14),
    changed(SOURCE_PORT + 16 + 14 + 4),
    changed(-1),
    lambda: record(outer(77, 40001, INSIDE, ttl=63)),
    lambda: record(outer(77, 40001, INSIDE, df=True)),
    lambda: record(outer(77, 40001, INSIDE + b"\0")),
    lambda: record(),
    lambda: record(outer(77, 40001, INSIDE), outer(78, 40001, INSIDE)),
    lambda: record(outer(77, 40001, INSIDE), outer(77, 40002, INSIDE)),
    lambda: record(outer(77, 40001, INSIDE), results=["EMSGSIZE"]),
    lambda: record(outer(77, 40001, INSIDE), errors=["EMSGSIZE 2 3 4 1300"]),
    lambda: record(outer(77, 40001, INSIDE), counters={"Ip:OutRequests": 2}),
    lambda: {**STOCK, "far": {"far.packets": 2}},
)


def test_nothing_else_may_differ() -> None:
    for number, other in enumerate(OTHERS):
        assert same.differences(STOCK, other()), number


def test_the_flow_of_a_packet_keeps_its_port() -> None:
    two = record(outer(1, 40001, INSIDE), outer(2, 40001, INSIDE))
    assert not same.differences(two, record(outer(3, 50000, INSIDE), outer(4, 50000, INSIDE)))
    assert same.differences(two, record(outer(3, 50000, INSIDE), outer(4, 50001, INSIDE)))


def test_ids() -> None:
    assert not same.wrong_ids(record(outer(0, 40001, INSIDE, df=True)), zero=True)
    assert same.wrong_ids(record(outer(5, 40001, INSIDE, df=True)), zero=True)
    assert not same.wrong_ids(record(outer(5, 40001, INSIDE, df=True)), zero=False)
    assert not same.wrong_ids(record(outer(5, 1, INSIDE), outer(6, 1, INSIDE)), zero=True)
    assert same.wrong_ids(record(outer(5, 1, INSIDE), outer(5, 1, INSIDE)), zero=True)


def test_records_of_other_steps_are_not_compared() -> None:
    with pytest.raises(ValueError, match="steps"):
        same.differences(STOCK, record(outer(77, 40001, INSIDE), name="put 4 size 29"))


def test_a_kind_has_packets_of_what_it_carries() -> None:
    for kind in KINDS.values():
        groups = (fitting(kind, 1400), large(kind, 1400), few(kind))
        assert {shot.protocol for shots in groups for shot in shots} >= set(kind.carries)
        for shots in groups:
            assert len({shot.name for shot in shots}) == len(shots)
