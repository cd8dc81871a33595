# SPDX-License-Identifier: GPL-2.0-only
"""The table of instructions by tunnel and part of the series."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodrop.errors import NodropError
from proof.tunnels import parts
from proof.tunnels.cost import MEASURED, VARIANTS


def rows(costs: dict[str, list[float]]) -> str:
    return "\n".join(
        json.dumps({"kind": kind, "variant": variant, "instructions": value})
        for kind in MEASURED
        for variant, values in costs.items()
        for value in values
    )


def test_table(tmp_path: Path) -> None:
    (tmp_path / "clean.jsonl").write_text(rows({"clean": [900, 990, 5000]}))
    with pytest.raises(NodropError):
        parts.table(tmp_path)
    (tmp_path / "series.jsonl").write_text(rows({"series": [900]}))
    costs = {name: [800.0, 10, 9000] for name in VARIANTS} | {"none": [1000]}
    (tmp_path / "switched.jsonl").write_text(rows(costs))
    head, _, first, *_ = parts.table(tmp_path).splitlines()
    assert head == "| tunnel | clean | series | none | references | id | both |"
    assert first == f"| vxlan | 990 | 900 (1.100) | 1000 |{' 800 (1.250) |' * 3}"


def test_variants_differ_by_one_part() -> None:
    assert list(VARIANTS.values()) == [3, 2, 1, 0]
