# SPDX-License-Identifier: GPL-2.0-only
"""What a guest says is heard while it says it, and for as long as it may take."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from nodrop import deadline
from nodrop.lab import hearing

SAYS = "echo a log >&{0}; echo two >&{0}; echo output >&{1}; echo 3 >&{2}"
BEGINS = f"echo {hearing.STARTS} >&{{0}}; "
ENDS = "echo 0 >&{2}; "
SLEEPS = "exec sleep 600"


def hear(
    script: str,
    *,
    timeout: float | None = 20.0,
    on_line: Callable[[str], None] | None = None,
) -> hearing.GuestRun:
    with hearing.channels() as (ours, theirs):
        fds = [end.fileno() for end in theirs]
        with subprocess.Popen(["bash", "-c", script.format(*fds)], pass_fds=fds) as process:
            for end in theirs:
                end.close()
            try:
                return hearing.hear(process, ours, timeout=timeout, on_line=on_line)
            finally:
                process.kill()


def test_each_line_is_given_on() -> None:
    output: list[str] = []
    made = hear(SAYS, on_line=output.append)
    assert output == ["output"]
    assert (made.status, made.log) == (3, "a log\ntwo")


def test_a_command_that_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "BOOT_S", 0.3)
    with pytest.raises(hearing.NeverAnswered) as caught:
        hear("echo boots >&{0}; " + SLEEPS)
    assert "boots" in caught.value.hint


def test_a_boot_that_had_no_time_is_no_silent_guest() -> None:
    with pytest.raises(hearing.GuestTimeout) as caught:
        hear("echo boots >&{0}; " + SLEEPS, timeout=0.3)
    assert type(caught.value) is hearing.GuestTimeout


def test_a_command_may_take_longer_than_a_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "BOOT_S", 0.3)
    assert hear(BEGINS + "sleep 1; " + ENDS).status == 0


def test_a_kernel_that_does_not_power_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "POWER_OFF_S", 0.3)
    monkeypatch.setattr(hearing, "BLOCKED_S", 0.1)
    with pytest.raises(hearing.StuckAtPowerOff) as caught:
        hear(BEGINS + ENDS + SLEEPS)
    assert caught.value.run.status == 0


def test_a_complaint_at_power_off_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "POWER_OFF_S", 0.3)
    monkeypatch.setattr(hearing, "BLOCKED_S", 0.1)
    with pytest.raises(hearing.GuestTimeout) as caught:
        hear(BEGINS + ENDS + "echo 'BUG: bad' >&{0}; " + SLEEPS)
    assert type(caught.value) is hearing.GuestTimeout


def test_blocked_tasks_are_asked_for_before_the_end() -> None:
    """The guest's first process writes them into the log."""
    answers = "read -r word <&{2}; echo the tasks that are $word >&{0}; "
    with pytest.raises(hearing.GuestTimeout, match="within 0 s") as caught:
        hear(BEGINS + answers + SLEEPS, timeout=0.3)
    assert "the tasks that are blocked" in caught.value.hint


def test_the_deadline_of_the_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(deadline.VARIABLE, str(time.monotonic() + 0.3))
    monkeypatch.setattr(hearing, "BLOCKED_S", 0.1)
    with pytest.raises(hearing.GuestTimeout):
        hear(BEGINS + SLEEPS, timeout=None)
