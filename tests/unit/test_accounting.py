# SPDX-License-Identifier: GPL-2.0-only
"""What is made of a case in a guest that was skipped."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
from accounting import account, may_skip

from nodrop.lab.hearing import GuestRun
from nodrop.lab.ktap import Case, Outcome
from nodrop.lab.selftests import Report


class Subtests:
    """Lets through what happens in a subtest."""

    def test(self, _: str) -> AbstractContextManager[None]:
        return nullcontext()


def skipped(program: str, reason: str, flavour: str | None) -> None:
    run = GuestRun(status=0, log="", output="", splats=(), seconds=0.0)
    report = Report(program, (("case", Case("case", Outcome.SKIPPED, reason)),), (), run)
    account(report, cast(Any, Subtests()), flavour)


def test_a_skip_that_is_known_is_a_skip() -> None:
    with pytest.raises(pytest.skip.Exception, match="injects no faults"):
        skipped("fault_load", "this kernel injects no faults", "debug")


@pytest.mark.parametrize(
    ("program", "reason", "flavour"),
    [
        ("fault_load", "this kernel injects no faults", "kasan"),
        ("fault_load", "too slow here", "debug"),
        ("tun_hold", "this kernel injects no faults", "debug"),
        ("tap_hold", "there is no macvtap.ko", "debug"),
        ("tun_hold", "", "debug"),
    ],
)
def test_another_skip_is_a_failure(program: str, reason: str, flavour: str) -> None:
    with pytest.raises((AssertionError, pytest.skip.Exception)) as ended:
        skipped(program, reason, flavour)
    assert ended.type is AssertionError
    assert "which SKIPS does not allow" in str(ended.value)


def test_a_kernel_that_is_not_ours_may_lack_anything() -> None:
    assert not may_skip("tun_hold", "debug", "this kernel has no such thing")
    with pytest.raises(pytest.skip.Exception):
        skipped("tun_hold", "this kernel has no such thing", None)
