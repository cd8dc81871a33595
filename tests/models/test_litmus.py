# SPDX-License-Identifier: GPL-2.0-only
"""Each litmus test ends as it says, by the Linux kernel's memory model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proof.herd import Herd

LITMUS = sorted((Path(__file__).parents[2] / "proof/litmus").glob("*.litmus"))


@pytest.mark.parametrize("litmus", LITMUS, ids=lambda path: path.stem)
def test_verdict(herd: Herd, litmus: Path) -> None:
    promises = re.findall(r"^ \* Result: (\w+)$", litmus.read_text(encoding="utf-8"), re.MULTILINE)
    broken = litmus.stem.endswith("-broken")
    assert promises == ["Sometimes" if broken else "Never"], "the file promises something else"
    assert herd.judge(litmus) == promises[0]
