# SPDX-License-Identifier: GPL-2.0-only
"""Steps on a terminal, in a file and quiet."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nodrop.progress import Progress


def made(text: io.StringIO, *, terminal: bool = False, quiet: bool = False) -> Progress:
    console = Console(file=text, force_terminal=terminal, width=200)
    return Progress(quiet=quiet, console=console)


def test_a_line_at_the_start_and_one_at_the_end() -> None:
    text = io.StringIO()
    with made(text) as progress, progress.step("Build it"):
        assert len(text.getvalue().splitlines()) == 1
    with pytest.raises(ValueError, match="x"), made(text) as progress, progress.step("Build it"):
        raise ValueError("x")
    assert len(text.getvalue().splitlines()) == 4


@pytest.mark.parametrize("quiet", [True, False])
def test_on_a_terminal(quiet: bool) -> None:
    text = io.StringIO()
    with made(text, terminal=True, quiet=quiet) as progress, progress.step("Build it", 2) as step:
        step.update("half", done=1)
    assert ("Build it" in text.getvalue()) is not quiet
