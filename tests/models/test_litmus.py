# SPDX-License-Identifier: GPL-2.0-only
"""Each litmus test ends as it says, by the Linux kernel's memory model; its twins can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.herd import Herd
from proof.litmus_twins import LITMUS, TWINS, Twin, twin_text

PAIRS = [pytest.param(test, twin, id=twin.name) for test, twins in TWINS.items() for twin in twins]


@pytest.mark.parametrize("test", LITMUS)
def test_verdict(herd: Herd, test: str) -> None:
    assert "\n * Result: Never\n" in LITMUS[test].read_text(encoding="utf-8")
    assert herd.judge(LITMUS[test]) == "Never"


@pytest.mark.parametrize(("test", "twin"), PAIRS)
def test_twin(herd: Herd, tmp_path: Path, test: str, twin: Twin) -> None:
    broken = tmp_path / f"{twin.name}.litmus"
    broken.write_text(twin_text(test, twin), encoding="utf-8")
    assert herd.judge(broken) == "Sometimes", twin.why
