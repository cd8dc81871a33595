# SPDX-License-Identifier: GPL-2.0-only
"""The table of instructions by tunnel and step of the series."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.errors import NodropError
from proof.tunnels import steps
from proof.tunnels.cost import MEASURED
from proof.tunnels.x86 import STEPS


def rows(instructions: list[float]) -> str:
    return "\n".join(
        json.dumps({"kind": kind, "instructions": value})
        for kind in MEASURED
        for value in instructions
    )


def test_table(tmp_path: Path) -> None:
    with pytest.raises(NodropError):
        steps.table(tmp_path)
    (tmp_path / "clean.jsonl").write_text(rows([900, 1000, 5000]))
    (tmp_path / "id.jsonl").write_text(rows([800, 10, 9000]))
    head, _, first, *_ = steps.table(tmp_path).splitlines()
    assert head == "| tunnel | clean | id |"
    assert first == "| vxlan | 1000 | 800 (1.250) |"


def test_each_step_adds_patches() -> None:
    assert list(STEPS.values()) == sorted(STEPS.values(), key=len)
    assert [len(folders) for folders in STEPS.values()] == [0, 2, 3, 4]
