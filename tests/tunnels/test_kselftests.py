# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own tests of tunnels say the same with the series as without, result by result.

What fails without it as well is the kernel's, this small guest's, or this Debian's tools'.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lab.kernel.source import find_source
from proof.tunnels.kselftest import RESULTS_NAME, SKIPPED

from .conftest import Side
from .kselftests import TESTS

MARGIN_S = 40.0
ATTEMPTS = 3
"""Some of them are about time as well: on a busy machine a result comes and goes. A difference
that stays is one."""


def results(side: Side, name: str, out: Path) -> list[list[str]]:
    out = out / side.name
    out.mkdir(parents=True)
    source = find_source()
    assert source is not None
    folder = source.tree / "tools/testing/selftests"
    seconds, *words = TESTS[name]
    argv = [sys.executable, "-m", "proof.tunnels.kselftest", str(folder), *words]
    side.run(argv, out, seconds + MARGIN_S, {"NODROP_KSELFTEST_SECONDS": str(seconds)})
    found: list[list[str]] = json.loads((out / RESULTS_NAME).read_text())["results"]
    return found


@pytest.mark.parametrize("name", TESTS)
def test_same_results(sides: tuple[Side, ...], name: str, tmp_path: Path) -> None:
    for attempt in range(ATTEMPTS):
        stock, series = (results(side, name, tmp_path / str(attempt)) for side in sides)
        if stock == series:
            break
    assert stock == series
    if stock[-1][1] == SKIPPED:
        pytest.skip("it says that something which it needs is not here")
