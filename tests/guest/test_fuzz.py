# SPDX-License-Identifier: GPL-2.0-only
"""A short run of the fuzzer that learns from what it reaches (docs/fuzzing.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.guest.fuzz.corpus import kept
from nodrop.kernel import Artifacts, Kernel
from nodrop.kernel.covered import ensure_covered
from nodrop.lab.fuzz import SUMMARY, Campaign, fuzz
from nodrop.lab.fuzz_guest import Guests
from nodrop.progress import Progress

SECONDS = 20.0
LEAST = {"nodrop": 0.25, "tun": 0.2, "vhost_net": 0.15}
"""Shares of the code that a run of this length reaches easily, also on a busy machine."""


@pytest.fixture(scope="module")
def guests(kernel: Kernel, artifacts: Artifacts, request: pytest.FixtureRequest) -> Guests:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), Progress() as progress:
        return Guests(kernel, ensure_covered(kernel, artifacts, progress))


def test_short_run_reaches_all_modules(guests: Guests, tmp_path: Path) -> None:
    summary = fuzz(Campaign(seed=1, seconds=SECONDS, flavour="test", out=tmp_path), guests)
    assert summary["findings"] == []
    assert summary["programs"] > 10
    for name, least in LEAST.items():
        passed, known = summary["code"][name]["places"]
        assert passed / known > least, (name, passed, known)
    assert len(list(kept(tmp_path / "corpus"))) == summary["corpus"] > 5
    assert (tmp_path / SUMMARY).exists()


def test_a_guest_that_dies_names_its_program(guests: Guests, tmp_path: Path) -> None:
    """Its time is over before the program has ended."""
    program = tmp_path / "program.txt"
    program.write_text("r0 = open_tun(RDWR)\nread(r0, 100)\n", encoding="utf-8")
    given = ["--times", "1000000", "--seconds", "100000", "--replay", str(program)]
    outcome = guests.run(given, tmp_path / "out", timeout=15.0)
    assert outcome.finding is not None
    assert outcome.finding.kind == "hangs"
    assert outcome.finding.program == program.read_text(encoding="utf-8")
