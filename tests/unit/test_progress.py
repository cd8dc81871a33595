# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import io

import pytest
from rich.console import Console

from nodrop.progress import Progress, format_seconds


def test_durations() -> None:
    assert format_seconds(4.25) == "4.2 s"
    assert format_seconds(185) == "3 min 05 s"


def test_who_asks_for_quiet_sees_nothing_and_a_log_gets_each_step() -> None:
    for quiet, lines in ((False, 2), (True, 0)):
        text = io.StringIO()
        console = Console(file=text, force_terminal=False, width=200)
        with Progress(quiet=quiet, console=console) as progress, progress.step("Build it"):
            pass
        assert len(text.getvalue().splitlines()) == lines
        assert text.getvalue().count("Build it") == lines


def test_eta() -> None:
    with Progress(quiet=True) as progress, progress.step("Run", total=4) as step:
        assert step.eta_s is None
        step.started -= 10
        step.advance(1)
        assert step.eta_s == pytest.approx(30, rel=0.05)
