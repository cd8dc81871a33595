# SPDX-License-Identifier: GPL-2.0-only
"""Each barrier names its litmus tests, and each litmus test is named and has a failing twin.

Tests on x86 do not notice a missing barrier: the CPU hardly needs them.
"""

from __future__ import annotations

import re
from pathlib import Path

from proof.herd import LITMUS, TWINS, code, twin_text

REPOSITORY = Path(__file__).parents[3]
TEXTS = {
    str(path.relative_to(REPOSITORY / "kmod")): path.read_text(encoding="utf-8")
    for path in sorted((REPOSITORY / "kmod").rglob("*.[ch]"))
    if "test" not in path.relative_to(REPOSITORY / "kmod").parts
}
BARRIER = re.compile(r"\b(?:smp_\w*(?:mb|release|acquire)\w*|smp_store_mb|clear_bit_unlock)\(")
NAMED = re.compile(
    r"Litmus: (?:proof/litmus/)?(\S+?)(?:\.litmus)?(?: \*/)?(?:\s*\\)?$", re.MULTILINE
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CODE = re.compile(r"^ \* Code: (.*)$", re.MULTILINE)
"""In a litmus test: the barriers of the code that it proves."""


def barriers(text: str) -> list[tuple[str, set[str]]]:
    """Return each barrier, and the litmus tests named in its statement's comment."""
    comments = list(COMMENT.finditer(text))
    found = []
    for barrier in BARRIER.finditer(text):
        around = [c for c in comments if c.start() < barrier.start()]
        if around and barrier.start() < around[-1].end():
            continue  # in a comment
        between = text[around[-1].end() : barrier.start()].strip() if around else "{"
        near = not re.search(r"[;{}]", between)
        found.append((barrier[0], set(NAMED.findall(around[-1][0])) if near else set()))
    return found


ALL = [
    (f"{one}) in {name}", tests) for name, text in TEXTS.items() for one, tests in barriers(text)
]


def test_every_barrier_names_an_existing_litmus_test() -> None:
    assert len(ALL) >= 8
    assert [where for where, tests in ALL if not tests] == []
    named = {name for text in TEXTS.values() for name in NAMED.findall(text)}
    assert named == LITMUS.keys()


def test_each_litmus_test_matches_the_code() -> None:
    manual = (REPOSITORY / "docs/memory-ordering.md").read_text(encoding="utf-8")
    for test, path in LITMUS.items():
        proof = path.read_text(encoding="utf-8")
        assert f"`{test}`" in manual
        assert test in proof.splitlines()[0]
        proved = sorted(where for where, tests in ALL if test in tests)
        assert CODE.findall(proof) == [", ".join(proved) or "none"], test
        assert all(f"{barrier.partition('(')[0]}(" in code(test) for barrier in proved), test


def test_each_litmus_test_has_twins_that_differ() -> None:
    assert {twin.test for twin in TWINS} == LITMUS.keys()
    codes = [code(test) for test in LITMUS]
    codes += [twin_text(twin).partition("\n")[2] for twin in TWINS]
    assert len({*codes}) == len(codes)
