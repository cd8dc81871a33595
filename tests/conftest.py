# SPDX-License-Identifier: GPL-2.0-only
"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest

from nodrop import deadline


def pytest_configure() -> None:
    """Ctrl-C reaches programs under test, also where the tests run in the background.

    A shell starts background jobs with the signal ignored, and that is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup() -> None:
    """Fail what there is no time for any more, so that the others' results are reported."""
    if deadline.at_most(None) == 0.0:
        pytest.fail("not run: the time of its stage is over", pytrace=False)
