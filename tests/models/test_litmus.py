# SPDX-License-Identifier: GPL-2.0-only
"""Each litmus test ends as it says, by the Linux kernel's memory model; its twins can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.herd import Herd
from proof.litmus_twins import LITMUS, TWINS, Twin, twin_text


@pytest.mark.parametrize("test", LITMUS)
def test_verdict(herd: Herd, test: str) -> None:
    assert "\n * Result: Never\n" in LITMUS[test].read_text(encoding="utf-8")
    assert herd.judge(LITMUS[test]) == "Never"


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_twin(herd: Herd, tmp_path: Path, twin: Twin) -> None:
    broken = tmp_path / f"{twin.name}.litmus"
    broken.write_text(twin_text(twin), encoding="utf-8")
    assert herd.judge(broken) == "Sometimes", twin.why
