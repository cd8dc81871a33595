# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from nodrop import progress as module
from nodrop.progress import Progress, format_seconds


def plain() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=False, width=200), text


def test_durations() -> None:
    assert format_seconds(4.25) == "4.2 s"
    assert format_seconds(185) == "3 min 05 s"


def test_plain_lines_have_start_and_end() -> None:
    console, text = plain()
    with Progress(console=console) as progress, progress.step("Build it"):
        pass
    first, last = text.getvalue().splitlines()
    assert first == "Build it ..."
    assert last.startswith("Build it: done after ")


def test_plain_lines_say_that_it_failed() -> None:
    console, text = plain()
    with (
        pytest.raises(ValueError, match="x"),
        Progress(console=console) as progress,
        progress.step("Build it"),
    ):
        raise ValueError("x")
    assert "Build it: failed after" in text.getvalue()


def test_long_step_shows_life_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_INTERVAL_S", 0.05)
    console, text = plain()
    with Progress(console=console) as progress, progress.step("Run", total=4) as step:
        step.advance(2, "pair 2 of 4")
        time.sleep(0.3)
    assert "pair 2 of 4, 50%" in text.getvalue()


def test_quiet_is_silent() -> None:
    console, text = plain()
    with Progress(quiet=True, console=console) as progress, progress.step("Build it"):
        progress.note("words")
    assert text.getvalue() == ""


def test_terminal_shows_the_steps() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with Progress(console=console) as progress, progress.step("Build it", total=2) as step:
        step.advance(1, "half")
    assert "Build it" in text.getvalue()


def test_eta() -> None:
    with Progress(quiet=True) as progress, progress.step("Run", total=4) as step:
        assert step.eta_s is None
        step.started -= 10
        step.advance(1)
        assert step.eta_s == pytest.approx(30, rel=0.05)
