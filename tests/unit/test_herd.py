# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from pathlib import Path

import pytest

from nodrop import proc
from nodrop.errors import NodropError
from nodrop.kernel.herd import Herd, parse_verdict

OUTPUT = """\
Test SB+stop+release Forbidden
States 3
No
Witnesses
Positive: 0 Negative: 3
Condition exists (0:r0=1 /\\ 1:r1=0)
Observation SB+stop+release Never 0 3
Time SB+stop+release 0.01
"""


def test_verdict() -> None:
    assert parse_verdict(OUTPUT, "SB+stop+release") == "Never"


@pytest.mark.parametrize("output", ["", OUTPUT * 2, OUTPUT.replace("Observation", "Warning")])
def test_no_verdict(output: str) -> None:
    assert parse_verdict(output, "SB+stop+release") is None


def test_verdict_on_another_test_does_not_count() -> None:
    assert parse_verdict(OUTPUT, "SB+stop") is None


@pytest.mark.parametrize(("status", "output"), [(1, OUTPUT), (0, "Fatal error: no cat file\n")])
def test_tool_that_fails_is_a_sentence(
    status: int, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nodrop.kernel.herd.proc.run", lambda *_args, **_options: proc.Completed(status, output, 0)
    )
    with pytest.raises(NodropError, match="no verdict"):
        Herd(Path("tree"), Path("model")).judge(Path("SB+stop+release.litmus"))
