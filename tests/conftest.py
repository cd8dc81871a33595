# SPDX-License-Identifier: GPL-2.0-only
"""What holds for all tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop import deadline

SPARE_S = 20.0
"""How long before its own limit a test's guests and builds are stopped, so that they report."""
RUNNING = "NODROP_RUNNING"
"""Names a folder with a file for each test that runs."""


def pytest_configure() -> None:
    """Ctrl-C reaches programs under test, also where the tests run in the background.

    A shell starts background jobs with the signal ignored, and that is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give a test no more time than its stage has left, and its guests a little less.

    The folder NODROP_RUNNING names what runs: what hangs for good is found there.
    """
    limit = float(item.config.getoption("timeout", None) or 0.0)
    if not limit:
        return (yield)
    before = os.environ.get(deadline.VARIABLE)
    left = deadline.at_most(limit) or 0.0
    item.add_marker(pytest.mark.timeout(left + SPARE_S if left < limit else limit))
    os.environ[deadline.VARIABLE] = f"{time.monotonic() + min(left, limit - SPARE_S):.1f}"
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    running = Path(os.environ.get(RUNNING, "/nowhere"), worker)
    try:
        if running.parent.is_dir():
            running.write_text(item.nodeid, encoding="utf-8")
        return (yield)
    finally:
        running.unlink(missing_ok=True)
        os.environ.pop(deadline.VARIABLE)
        if before:
            os.environ[deadline.VARIABLE] = before


def pytest_runtest_setup() -> None:
    """Fail what there is no time for any more, so that the others' results are reported."""
    if deadline.at_most(None) == 0.0:
        pytest.fail("not run: the time of its stage is over", pytrace=False)
