# SPDX-License-Identifier: GPL-2.0-only
"""Time limits, signals, the terminal, option --part, and what is built once, for all tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab import DEADLINE, meet_deadline
from lab.kernel import Artifacts, Kernel, ensure_artifacts, ensure_kernel
from nodrop import proc
from nodrop.errors import NodropError
from nodrop.progress import Progress
from proof.herd import Herd, ensure_herd

SPARE_S = 20.0
"""A test's guests and builds are stopped so long before its limit, so it can report, seconds."""
FLAVOUR = os.environ.get("LAB_TEST_FLAVOUR", "debug")
"""The kernel's flavour; by default the one with lockdep and other debug options."""
RUNNING = "LAB_RUNNING"
"""Environment variable: a directory with a file for each running test."""

MISSING: dict[str, str] = {}
"""Proofs that were left out -> why."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        default="1/1",
        metavar="N/OF",
        help="run only this part: 2/3 is every third test from the second one on",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, of = map(int, config.getoption("part").split("/"))
    chosen = items[number - 1 :: of]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for what, why in MISSING.items():
        terminalreporter.write_line(f"NOT PROVEN: {what} did not run: {why}", red=True, bold=True)


def pytest_configure() -> None:
    """Make Ctrl-C reach programs under test even if the tests run in the background.

    A shell starts background jobs with SIGINT ignored, and children inherit that.
    """
    meet_deadline()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Limit a test to the remaining time of its stage, and its guests to a little less.

    The directory LAB_RUNNING identifies a test that hangs for good.
    """
    limit = float(item.config.getoption("timeout", None) or 0.0)
    if not limit:
        return (yield)
    left = proc.at_most(limit) or 0.0
    item.add_marker(pytest.mark.timeout(left + SPARE_S if left < limit else limit))
    before = os.environ.get(DEADLINE)
    os.environ[DEADLINE] = f"{time.monotonic() + min(left, limit - SPARE_S):.1f}"
    meet_deadline()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    running = Path(os.environ.get(RUNNING, "/nowhere"), worker)
    try:
        if running.parent.is_dir():
            running.write_text(item.nodeid, encoding="utf-8")
        return (yield)
    finally:
        running.unlink(missing_ok=True)
        os.environ.pop(DEADLINE)
        if before:
            os.environ[DEADLINE] = before
        meet_deadline()


def pytest_runtest_setup() -> None:
    """Fail a test for which there is no time left, so that the others' results are reported."""
    if proc.at_most(None) == 0.0:
        pytest.fail("not run: its stage has no time left", pytrace=False)


@contextmanager
def on_terminal(request: pytest.FixtureRequest) -> Iterator[Progress]:
    """Show the progress of a build on the terminal, although output is captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        yield progress


@pytest.fixture(scope="session")
def kernel(request: pytest.FixtureRequest) -> Kernel:
    with on_terminal(request) as progress:
        return ensure_kernel(progress, FLAVOUR)


@pytest.fixture(scope="session")
def artifacts(kernel: Kernel, request: pytest.FixtureRequest) -> Artifacts:
    with on_terminal(request) as progress:
        return ensure_artifacts(kernel, progress)


@pytest.fixture(scope="session")
def herd(request: pytest.FixtureRequest) -> Herd:
    """Return herd7; skip the test, and report that, if it cannot be built."""
    try:
        with on_terminal(request) as progress:
            return ensure_herd(progress)
    except NodropError as error:
        MISSING["litmus tests"] = error.message
        pytest.skip(f"no herd7: {error}")
