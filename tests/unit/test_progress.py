# SPDX-License-Identifier: GPL-2.0-only
"""Steps on a terminal, in a file and quiet; how much is left."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from nodrop import progress as module
from nodrop.progress import Progress, format_seconds


class Seen(io.StringIO):
    """A stream that tells when a text has been written to it."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text, self.there = text, threading.Event()

    def write(self, data: str) -> int:
        written = super().write(data)
        if self.text and self.text in self.getvalue():
            self.there.set()
        return written


def made(text: io.StringIO, *, terminal: bool = False, quiet: bool = False) -> Progress:
    console = Console(file=text, force_terminal=terminal, width=200)
    return Progress(quiet=quiet, console=console)


def test_durations() -> None:
    assert [format_seconds(one) for one in (4.25, 185)] == ["4.2 s", "3 min 05 s"]


def test_a_line_at_the_start_and_one_at_the_end() -> None:
    text = io.StringIO()
    with made(text) as progress, progress.step("Build it"):
        assert len(text.getvalue().splitlines()) == 1
    with pytest.raises(ValueError, match="x"), made(text) as progress, progress.step("Build it"):
        raise ValueError("x")
    assert len(text.getvalue().splitlines()) == 4


def test_long_step_shows_life_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_INTERVAL_S", 0.05)
    text = Seen("pair 2 of 4, 50%")
    with made(text) as progress, progress.step("Run", total=4) as step:
        step.advance(2, "pair 2 of 4")
        assert text.there.wait(60)


@pytest.mark.parametrize("quiet", [True, False])
def test_on_a_terminal(quiet: bool) -> None:
    text = io.StringIO()
    with made(text, terminal=True, quiet=quiet) as progress, progress.step("Build it", 2) as step:
        step.advance(1, "half")
    assert ("Build it" in text.getvalue()) is not quiet


def test_eta() -> None:
    with made(io.StringIO(), quiet=True) as progress, progress.step("Run", total=4) as step:
        assert step.eta_s is None
        step.started -= 1000
        step.advance(1)
        assert step.eta_s == pytest.approx(3000, rel=0.05)
