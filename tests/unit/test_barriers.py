# SPDX-License-Identifier: GPL-2.0-only
"""Each barrier names its proof, and each proof is named and can fail."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LITMUS = {path.stem: path for path in (REPOSITORY / "tests/litmus").glob("*.litmus")}
SOURCES = [
    path
    for path in sorted((REPOSITORY / "kmod").rglob("*.[ch]"))
    if "test" not in path.relative_to(REPOSITORY / "kmod").parts
]
TEXTS = {
    str(path.relative_to(REPOSITORY / "kmod")): path.read_text(encoding="utf-8") for path in SOURCES
}
WHOLE = [name for name in LITMUS if not name.endswith("-broken")]
BARRIER = re.compile(r"\b(?:smp_\w*(?:mb|release|acquire)\w*|smp_store_mb)\(")
NAMED = re.compile(
    r"Litmus: (?:tests/litmus/)?(\S+?)(?:\.litmus)?(?: \*/)?(?:\s*\\)?$", re.MULTILINE
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CODE = re.compile(r"^ \* Code: (.*)$", re.MULTILINE)
"""In a litmus test: which barriers of the code it is about."""


def named_near_barriers(text: str) -> list[tuple[int, set[str]]]:
    """Return the line of each barrier, and what the comment next before it names."""
    comments = list(COMMENT.finditer(text))
    found = []
    for barrier in BARRIER.finditer(text):
        around = [c for c in comments if c.start() < barrier.start()]
        if around and barrier.start() < around[-1].end():
            continue  # a comment speaks of it
        between = text[around[-1].end() : barrier.start()].strip() if around else "{"
        near = not re.search(r"[;{}]", between)
        line = text.count("\n", 0, barrier.start()) + 1
        found.append((line, set(NAMED.findall(around[-1][0])) if near else set()))
    return found


def proved_by(test: str, texts: dict[str, str]) -> list[str]:
    """Return the barriers whose comment names a test, by their files; a barrier is in the
    statement that follows its comment."""
    found = []
    for name, text in texts.items():
        for comment in COMMENT.finditer(text):
            statement = re.split(r"[;{}]", text[comment.end() :], maxsplit=1)[0]
            if test in NAMED.findall(comment[0]) and (barrier := BARRIER.search(statement)):
                found.append(f"{barrier[0]}) in {name}")
    return sorted(found)


def twins(test: str) -> list[str]:
    return [
        name
        for name, path in LITMUS.items()
        if name.endswith("-broken") and f" * As {test}," in path.read_text(encoding="utf-8")
    ]


def test_every_barrier_names_its_litmus_test() -> None:
    barriers = [
        (f"{name}:{line}", names)
        for name, text in TEXTS.items()
        for line, names in named_near_barriers(text)
    ]
    assert len(barriers) >= 8
    assert [where for where, names in barriers if not names] == []


def test_a_barrier_without_a_name_is_found() -> None:
    assert named_near_barriers("/*\n * Litmus: X\n */\nsmp_mb();\nsmp_wmb();\n") == [
        (4, {"X"}),
        (5, set()),
    ]
    assert named_near_barriers("/* Litmus: X */\t\\\nsmp_mb();\n") == [(2, {"X"})]
    assert named_near_barriers("/* not smp_mb() */\n") == []


def test_what_is_named_exists() -> None:
    named = {name for text in TEXTS.values() for name in NAMED.findall(text)}
    assert named <= LITMUS.keys()


def test_each_proof_is_named_by_code_and_by_the_manual_and_can_fail() -> None:
    manual = (REPOSITORY / "docs/memory-ordering.md").read_text(encoding="utf-8")
    named = {name for text in TEXTS.values() for name in NAMED.findall(text)}
    for test in WHOLE:
        assert test in named
        assert f"`{test}`" in manual
        assert twins(test), test
        assert test in LITMUS[test].read_text(encoding="utf-8").splitlines()[0]


def test_a_barrier_that_went_or_changed_is_found() -> None:
    there = "/*\n * Litmus: X\n */\nsmp_mb();\nq->asked = true;\n"
    assert proved_by("X", {"a.c": there}) == ["smp_mb() in a.c"]
    assert proved_by("X", {"a.c": there.replace("smp_mb();\n", "")}) == []
    assert proved_by("X", {"a.c": there.replace("smp_mb", "smp_wmb")}) == ["smp_wmb() in a.c"]


def test_the_code_has_the_barriers_of_each_proof() -> None:
    """No machine here notices a barrier that is gone: x86 does without most of them."""
    for test in WHOLE:
        proof = LITMUS[test].read_text(encoding="utf-8")
        words = CODE.search(proof)
        assert words, test
        barriers = proved_by(test, TEXTS)
        assert words[1] == (", ".join(barriers) or "none"), test
        body = proof[proof.index("*)") :]
        assert all(f"{barrier.partition('(')[0]}(" in body for barrier in barriers), test


def test_each_twin_has_its_whole() -> None:
    assert {twin for whole in WHOLE for twin in twins(whole)} == LITMUS.keys() - {*WHOLE}
