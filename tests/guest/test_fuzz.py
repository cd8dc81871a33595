# SPDX-License-Identifier: GPL-2.0-only
"""A short run of the fuzzer that learns from what it reaches (docs/fuzzing.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nodrop.guest.fuzz.corpus import kept
from nodrop.guest.fuzz.cover import MODULES
from nodrop.guest.fuzz.state import read_states
from nodrop.kernel import Artifacts, Kernel
from nodrop.kernel.covered import ensure_covered
from nodrop.lab.fuzz import fuzz
from nodrop.lab.fuzz_guest import Guests
from nodrop.progress import Progress

SECONDS = 20.0


@pytest.fixture(scope="module")
def guests(kernel: Kernel, artifacts: Artifacts, request: pytest.FixtureRequest) -> Guests:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        return Guests(kernel, ensure_covered(kernel, artifacts, progress))


def test_short_run_reaches_all_modules(guests: Guests, tmp_path: Path) -> None:
    assert fuzz(guests, tmp_path, seed=1, seconds=SECONDS) == []
    (state,) = read_states(tmp_path)
    assert state.programs > 10
    assert set(state.places) == set(MODULES)
    assert len(list(kept(tmp_path / "corpus"))) > 5


def test_a_guest_that_dies_names_its_program(
    guests: Guests, tmp_path: Path, time_passes: Callable[[], None]
) -> None:
    """Its time is over before the program has ended."""
    program = tmp_path / "program.txt"
    program.write_text("r0 = open_tun(RDWR)\nread(r0, 100)\n", encoding="utf-8")
    given = ["--times", "1000000", "--seconds", "100000", "--replay", str(program)]
    outcome = guests.run(
        given, tmp_path / "out", timeout=600.0, on_line=lambda _line: time_passes()
    )
    assert outcome.finding is not None
    assert outcome.finding.kind == "hangs"
    assert outcome.finding.program == program.read_text(encoding="utf-8")
