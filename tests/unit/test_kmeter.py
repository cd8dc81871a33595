# SPDX-License-Identifier: GPL-2.0-only
"""What the meter's samples mean, and that its header and the program agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodrop.guest.kmeter import PATTERN, Sample, pairs
from nodrop.guest.tunnels.kinds import KINDS, frame

HEADER = Path(__file__).resolve().parents[2] / "traffic/kreader/kmeter.h"


def sample(slot: int, cycles: int, *, cpu: int = 0, packets: int = 10) -> Sample:
    return Sample(slot, cpu, packets, 0, cycles * packets)


def test_what_drifts_drifts_for_both() -> None:
    # 10 cycles more with each slot, and 7 less with the second variant.
    drift = [sample(slot, 1000 + 10 * slot - 7 * PATTERN[slot % 4]) for slot in range(8)]
    assert [before - after for before, after in pairs(drift)] == [7, 7]


def test_only_complete_groups_count_and_cpus_are_apart() -> None:
    samples = [sample(slot, 100) for slot in range(4)]
    samples += [sample(slot, 300, cpu=1) for slot in range(4, 8)]
    samples += [sample(slot, 9000) for slot in (4, 5, 6)]
    assert sorted(pairs(samples)) == [(100, 100), (300, 300)]


def test_the_header_says_the_same_pattern() -> None:
    text = re.search(r"kmeter_variant\(.*\)\n{\n\treturn (.*);", HEADER.read_text())
    assert text
    for slot in range(16):
        assert eval(text[1], {"slot": slot}) == PATTERN[slot % 4]


def test_a_frame_is_what_its_tunnel_carries() -> None:
    for name, kind in KINDS.items():
        packet = frame(kind)
        version = packet.data[packet.network] >> 4
        assert version == (6 if packet.protocol == 0x86DD else 4), name
        assert packet.network == (14 if kind.ethernet else 0), name


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.inner == 0x0800])
def test_the_checksum_of_its_header_is_right(name: str) -> None:
    packet = frame(KINDS[name])
    header = packet.data[packet.network : packet.network + 20]
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
