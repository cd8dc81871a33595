# SPDX-License-Identifier: GPL-2.0-only
"""The tools of the proofs, and a loud word when one cannot be had."""

from __future__ import annotations

import pytest
from conftest import on_terminal

from nodrop.errors import NodropError
from proof.herd import Herd, ensure_herd

MISSING: dict[str, str] = {}
"""What was left out -> why."""


@pytest.fixture(scope="session")
def herd(request: pytest.FixtureRequest) -> Herd:
    try:
        with on_terminal(request) as progress:
            return ensure_herd(progress)
    except NodropError as error:
        MISSING["litmus tests"] = error.message
        pytest.skip(f"no herd7: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for what, why in MISSING.items():
        terminalreporter.write_line(f"NOT PROVEN: {what} did not run: {why}", red=True, bold=True)
