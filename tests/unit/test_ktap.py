# SPDX-License-Identifier: GPL-2.0-only
from __future__ import annotations

from nodrop.lab import ktap
from nodrop.lab.ktap import Outcome


def leaves(text: str) -> dict[str, Outcome]:
    return {n: c.outcome for case in ktap.parse(text) for n, c in case.leaves()}


def test_flat() -> None:
    text = "TAP version 13\n1..3\nok 1 - first\nnot ok 2 second\nok 3 third # SKIP no vhost\n"
    cases = ktap.parse(text)
    assert [(c.name, c.outcome) for c in cases] == [
        ("first", Outcome.PASSED),
        ("second", Outcome.FAILED),
        ("third", Outcome.SKIPPED),
    ]
    assert cases[2].reason == "no vhost"


def test_nested_as_kunit_writes_it_into_the_kernels_log() -> None:
    text = """\
[    1.000000] KTAP version 1
[    1.000001] 1..1
[    1.000002]     KTAP version 1
[    1.000003]     # Subtest: nodrop-queue
[    1.000004]     # module: queue_test
[    1.000005]     1..2
[    1.000006]     ok 1 stops_before_full
[    1.000007] tun: an unrelated line
[    1.000008]     # wakes_at_batch: EXPECTATION FAILED at kmod/flow/queue_test.c:41
[    1.000009]     not ok 2 wakes_at_batch
[    1.000010] # nodrop-queue: pass:1 fail:1 skip:0 total:2
[    1.000011] not ok 1 nodrop-queue
"""
    assert leaves(text) == {
        "nodrop-queue/stops_before_full": Outcome.PASSED,
        "nodrop-queue/wakes_at_batch": Outcome.FAILED,
    }
    (group,) = ktap.parse(text)
    assert "EXPECTATION FAILED" in group.children[1].diagnostics[0]


def test_failure_below_an_ok_group_counts() -> None:
    text = "KTAP version 1\n1..1\n  1..1\n  not ok 1 inner\nok 1 outer\n"
    assert leaves(text) == {"outer/inner": Outcome.FAILED}


def test_group_that_fails_by_itself_is_visible() -> None:
    text = "KTAP version 1\n1..1\n  1..1\n  ok 1 inner\nnot ok 1 outer\n"
    assert leaves(text) == {"outer/inner": Outcome.PASSED, "outer": Outcome.FAILED}


def test_test_that_died_in_the_middle_fails() -> None:
    assert leaves("KTAP version 1\n1..3\nok 1 a\nok 2 b\n")["plan"] is Outcome.FAILED


def test_missing_subtest_fails_its_group() -> None:
    text = "KTAP version 1\n1..1\n  1..2\n  ok 1 inner\nok 1 outer\n"
    assert leaves(text)["outer/plan"] is Outcome.FAILED


def test_expected_failures() -> None:
    text = "1..4\nnot ok 1 a # TODO later\nok 2 b # XFAIL\nnot ok 3 c # TIMEOUT\nok 4 d # ERROR\n"
    found = leaves(text)
    assert found["a"] is Outcome.SKIPPED
    assert found["b"] is Outcome.FAILED
    assert found["c"] is Outcome.FAILED
    assert found["d"] is Outcome.FAILED


def test_whole_test_skipped() -> None:
    assert leaves("1..0 # SKIP needs root\n") == {"all": Outcome.SKIPPED}


def test_bail_out_fails() -> None:
    assert leaves("1..2\nok 1 a\nBail out! no device\n")["bail"] is Outcome.FAILED


def test_no_results() -> None:
    assert ktap.parse("just text\nokay then\n") == []


def test_case_without_a_name_has_its_number() -> None:
    assert leaves("1..1\nok 1\n") == {"1": Outcome.PASSED}
