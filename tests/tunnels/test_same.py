# SPDX-License-Identifier: GPL-2.0-only
"""Each kind of tunnel sends the same packets with the series as without, byte for byte.

What may differ: nodrop/guest/tunnels/masked.py. tests/unit/test_tunnels_same.py has records that
differ in one byte and must be told apart.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nodrop.guest.tunnels import same
from nodrop.guest.tunnels.kinds import BEARERS, KINDS

from .conftest import Side

TIMEOUT_S = 300.0
FEWEST_STEPS, FEWEST_FRAMES, FEWEST_OF_BEARERS = 150, 100, 4


def record(side: Side, kind: str, out: Path) -> dict[str, Any]:
    out = out / side.name
    out.mkdir()
    argv = [sys.executable, "-m", "nodrop.guest.tunnels.record", "--type", kind]
    run = side.run(argv, out, TIMEOUT_S)
    assert run.status == 0, run.output
    found: dict[str, Any] = json.loads((out / f"record-{kind}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_same_packets(sides: tuple[Side, Side], kind: str, tmp_path: Path) -> None:
    stock, series = (record(side, kind, tmp_path) for side in sides)
    told = same.summary(stock)
    assert told["steps"] >= FEWEST_STEPS, told
    assert told["out"] >= FEWEST_FRAMES, told
    assert told["refused"] > 0, told
    compare(stock, series)


@pytest.mark.parametrize("protocol", BEARERS)
def test_same_packets_without_a_device(
    sides: tuple[Side, Side], protocol: str, tmp_path: Path
) -> None:
    stock, series = (record(side, protocol, tmp_path) for side in sides)
    assert same.summary(stock)["out"] >= FEWEST_OF_BEARERS
    compare(stock, series)


def compare(stock: dict[str, Any], series: dict[str, Any]) -> None:
    found = [str(one) for one in same.differences(stock, series)]
    found += same.wrong_ids(series, zero=True)
    assert not found, "\n".join(found[:20])
