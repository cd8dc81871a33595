# SPDX-License-Identifier: GPL-2.0-only
"""A guest is booted again when its end says nothing about what it ran, once, and on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodrop.errors import NodropError
from nodrop.lab import again
from nodrop.lab.hearing import (
    DiedAtBoot,
    GuestDied,
    GuestRun,
    GuestTimeout,
    NeverAnswered,
    StuckAtPowerOff,
)

DONE = GuestRun(0, "", "", (), 1.0)
FAILED = GuestRun(1, "", "", (), 1.0)
SILENT = (DiedAtBoot, NeverAnswered)


def stuck(run: GuestRun) -> StuckAtPowerOff:
    return StuckAtPowerOff("It is gone.", "its last words", run)


def boots(*ends: GuestRun | NodropError) -> tuple[again.Boot, list[GuestRun | NodropError]]:
    left = list(ends)

    def boot() -> GuestRun:
        end = left.pop(0)
        if isinstance(end, NodropError):
            raise end
        return end

    return boot, left


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "repeated.txt"
    monkeypatch.setenv(again.VARIABLE, str(path))
    return path


@pytest.mark.parametrize("kind", SILENT)
def test_once_more(kind: type[NodropError], record: Path) -> None:
    boot, left = boots(kind("It is gone.", "its last words"), DONE)
    assert again.insist(boot) is DONE
    assert left == []
    assert record.read_text().count("A guest is booted again") == 1
    assert kind.__name__ in record.read_text()
    assert "its last words" in record.read_text()


@pytest.mark.parametrize("kind", SILENT)
def test_not_twice(kind: type[NodropError]) -> None:
    boot, left = boots(*(kind("It is gone.") for _ in range(5)))
    with pytest.raises(kind):
        again.insist(boot)
    assert len(left) == 3


@pytest.mark.parametrize("kind", [GuestDied, GuestTimeout])
def test_never_for_what_the_command_may_have_done(kind: type[NodropError], record: Path) -> None:
    boot, left = boots(kind("It is gone."), DONE)
    with pytest.raises(kind):
        again.insist(boot)
    assert left == [DONE]
    assert not record.exists()


def test_a_success_that_does_not_power_off_is_repeated(record: Path) -> None:
    boot, left = boots(stuck(DONE), DONE)
    assert again.insist(boot) is DONE
    assert left == []
    assert "StuckAtPowerOff" in record.read_text()


def test_a_failure_that_does_not_power_off_is_a_failure(record: Path) -> None:
    boot, left = boots(stuck(FAILED), DONE)
    assert again.insist(boot) is FAILED
    assert left == [DONE]
    assert not record.exists()


def test_what_was_heard_already_is_not_run_again() -> None:
    boot, left = boots(stuck(DONE), FAILED)
    assert again.insist(boot, listened=True) is DONE
    assert left == [FAILED]
