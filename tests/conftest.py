# SPDX-License-Identifier: GPL-2.0-only
"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C reaches programs under test, also where the tests run in the background.

    A shell starts background jobs with the signal ignored, and that is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
