# SPDX-License-Identifier: GPL-2.0-only
"""Each barrier names its proof, and each proof is named and can fail.

No machine here notices a barrier that is gone: x86 does without most of them.
"""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LITMUS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (REPOSITORY / "tests/litmus").glob("*.litmus")
}
TEXTS = {
    str(path.relative_to(REPOSITORY / "kmod")): path.read_text(encoding="utf-8")
    for path in sorted((REPOSITORY / "kmod").rglob("*.[ch]"))
    if "test" not in path.relative_to(REPOSITORY / "kmod").parts
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


def proved_by(test: str) -> list[str]:
    """Return the barriers whose comment names a test, by their files; a barrier is in the
    statement that follows its comment."""
    found = []
    for name, text in TEXTS.items():
        for comment in COMMENT.finditer(text):
            statement = re.split(r"[;{}]", text[comment.end() :], maxsplit=1)[0]
            if test in NAMED.findall(comment[0]) and (barrier := BARRIER.search(statement)):
                found.append(f"{barrier[0]}) in {name}")
    return sorted(found)


def test_every_barrier_names_a_litmus_test_that_there_is() -> None:
    barriers = [
        (f"{name}:{line}", names)
        for name, text in TEXTS.items()
        for line, names in named_near_barriers(text)
    ]
    assert len(barriers) >= 8
    assert [where for where, names in barriers if not names] == []
    named = {name for text in TEXTS.values() for name in NAMED.findall(text)}
    assert {*WHOLE} <= named <= LITMUS.keys()


def test_each_proof_is_of_the_codes_barriers_and_can_fail() -> None:
    manual = (REPOSITORY / "docs/memory-ordering.md").read_text(encoding="utf-8")
    twins = set()
    for test in WHOLE:
        proof = LITMUS[test]
        assert f"`{test}`" in manual
        assert test in proof.splitlines()[0]
        barriers = proved_by(test)
        assert CODE.findall(proof) == [", ".join(barriers) or "none"], test
        body = proof[proof.index("*)") :]
        assert all(f"{barrier.partition('(')[0]}(" in body for barrier in barriers), test
        broken = {name for name in LITMUS.keys() - {*WHOLE} if f" * As {test}," in LITMUS[name]}
        assert broken, test
        twins |= broken
    assert twins == LITMUS.keys() - {*WHOLE}
