# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's own tests print, in their several dialects."""

from __future__ import annotations

import sys
from pathlib import Path

from nodrop.guest import kselftest

KTAP = """TAP version 13
1..3
ok 1 first
not ok 2 - second
# ok 3 third # SKIP no tool
"""
WORDS = """
    TEST: GREv6/v4 - copy file w/ TSO                                   [ OK ]
\x1b[32mTEST: default route\x1b[0m                                    [FAIL]
TEST: route      [SKIP]
"""
SENTENCES = "PASS: policy before exception matches\nFAIL: expected ping to fail\nSKIP: no nft\n"


def test_parse_ktap() -> None:
    assert kselftest.parse(KTAP) == [("first", "ok"), ("second", "not ok"), ("third", "SKIP")]


def test_parse_words() -> None:
    names = ["TEST: GREv6/v4 - copy file w/ TSO", "TEST: default route", "TEST: route"]
    assert kselftest.parse(WORDS) == list(zip(names, ("OK", "FAIL", "SKIP"), strict=True))


def test_parse_sentences() -> None:
    assert [outcome for _, outcome in kselftest.parse(SENTENCES)] == ["PASS", "FAIL", "SKIP"]


def test_parse_leaves_out_what_was_counted() -> None:
    line = "TEST: FOU multicast (received 101/100)   [ OK ]"
    assert kselftest.parse(line) == [("TEST: FOU multicast", "OK")]


def test_parse_takes_nothing_else() -> None:
    assert not kselftest.parse("is it ok?\n1 2 3 [  ]\nnot okay\n")


def test_results_end_with_the_exit_status(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "print('ok 1 it'); raise SystemExit(4)"]
    found, text = kselftest.results(argv, tmp_path, 20.0)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.SKIPPED)]
    assert text == "ok 1 it\n"


def test_results_of_one_that_does_not_end(tmp_path: Path) -> None:
    argv = [sys.executable, "-uc", "import time; print('ok 1 it'); time.sleep(60)"]
    found, _ = kselftest.results(argv, tmp_path, 0.3)
    assert found == [("it", "ok"), (kselftest.EXIT_STATUS, kselftest.STOPPED)]
