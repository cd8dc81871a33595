# SPDX-License-Identifier: GPL-2.0-only
"""Without a kernel: the text of a frame hides differences that two kernels may have, and no others;
the tables of what was measured.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from guestlib.packets import checksum, summed, udp
from tunnels import measure
from tunnels.links import HERE4, KINDS, MAC, THERE4
from tunnels.masked import Masker
from tunnels.meter import VARIANTS, Row, SlotSample, pairs
from tunnels.packets import VNET, ip4
from tunnels.topology import pmtu_message

HERE = Path(__file__).resolve().parents[1]

LINK = MAC + bytes(6) + b"\x08\x00"
INSIDE = LINK + ip4(udp(64))
UDP_AT = 14 + 20
PLAIN = VNET.pack(0, 0, 0, 0, 0, 0)


def outer(
    ident: int, port: int, inside: bytes = INSIDE, *, df: bool = False, ttl: int = 9
) -> bytes:
    """Return a vxlan packet as on the wire, with a checksum."""
    data = struct.pack("!4H", port, 4789, 16 + len(inside), 0) + bytes((8, 0, 0, 0, 0, 0, 1, 0))
    packet = ip4(data + inside, fragment=0x4000 if df else 0, ttl=ttl, at=(HERE4, THERE4))
    packet = packet[:4] + struct.pack("!H", ident) + packet[6:10] + bytes(2) + packet[12:]
    packet = packet[:10] + struct.pack("!H", checksum(packet[:20])) + packet[12:]
    return LINK + summed(packet)


def text(*frames: bytes) -> list[str]:
    masker = Masker(KINDS["vxlan"])
    return [masker.line(frame, PLAIN) for frame in frames]


def test_id_and_port_may_differ() -> None:
    assert text(outer(77, 40001)) == text(outer(78, 50002))


def test_nothing_else_may_differ() -> None:
    stock = text(outer(77, 40001))
    for at in (0, 15, 24, UDP_AT + 3, UDP_AT + 6, UDP_AT + 14, UDP_AT + 34, -1):
        frame = bytearray(outer(77, 40001))
        frame[at] ^= 0x12
        assert text(bytes(frame)) != stock, at
    for other in (
        outer(77, 40001, ttl=8),
        outer(77, 40001, df=True),
        outer(77, 40001, INSIDE + b"\0"),
    ):
        assert text(other) != stock


def test_shared_ids_and_ports() -> None:
    assert text(outer(1, 4), outer(1, 4)) == text(outer(2, 5), outer(2, 5))
    assert text(outer(1, 4), outer(1, 4)) != text(outer(1, 4), outer(2, 4))
    assert text(outer(1, 4), outer(1, 4)) != text(outer(1, 4), outer(1, 5))


def test_an_id_with_df_is_seen() -> None:
    assert "df:0" in text(outer(0, 4, df=True))[0]
    assert " df:1" in text(outer(9, 4, df=True))[0]
    segments = Masker(KINDS["vxlan"], gso=True)
    assert "gso-df:1" in segments.line(outer(9, 4, df=True), PLAIN)


def test_icmp_message_about_a_smaller_mtu() -> None:
    sent = pmtu_message("198.18.4.1", "198.18.4.2", 1400)
    assert checksum(sent) == 0
    assert sent[:2] == b"\x03\x04"
    assert int.from_bytes(sent[6:8]) == 1400
    # About an echo reply: the kernel accepts that without a socket.
    assert sent[8 + 9] == 1
    assert sent[8 + 20] == 0


def test_table_of_medians() -> None:
    costs: dict[str, list[float]] = {"clean": [900, 990, 5000], "series": [900], "none": [1000]}
    costs |= {name: [800, 10, 9000] for name in VARIANTS if name != "none"}
    rows: list[Row] = [
        {"tunnel": "vxlan", "variant": variant, "cost": cost}
        for variant, values in costs.items()
        for cost in values
    ]
    head, _, line = measure.table("instructions", rows).splitlines()
    assert head == "| tunnel | clean | series | none | references | id | both |"
    assert line == f"| vxlan | 990 | 900 (1.100) | 1000 |{' 800 (1.250) |' * 3}"
    only = [row for row in rows if row["variant"] == "series"]
    assert measure.table("instructions", only).splitlines()[-1] == (
        f"| vxlan | - | 900 |{' - |' * 4}"
    )


@pytest.mark.parametrize("kind", measure.MEASUREMENTS)
def test_published_tables_are_of_their_rows(kind: str) -> None:
    rows = measure.rows(HERE / "results", kind)
    table = measure.table(kind, rows)
    assert (HERE / f"results/{kind}.md").read_text() == table + "\n"
    assert table in (HERE / "README.md").read_text()


def test_variants_differ_by_one_part() -> None:
    assert list(VARIANTS.values()) == [3, 2, 1, 0]


def test_pairs_of_complete_groups() -> None:
    costs = (4, 1, 3, 6, 9)
    samples = [SlotSample(slot, 0, 2, 0, 2 * cost) for slot, cost in enumerate(costs)]
    assert list(pairs(samples)) == [(5, 2)]
    assert list(pairs(samples[1:])) == []
