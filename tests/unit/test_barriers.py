# SPDX-License-Identifier: GPL-2.0-only
"""Each barrier names its proof, and each proof is named and can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LITMUS = {path.stem: path for path in (REPOSITORY / "tests/litmus").glob("*.litmus")}
SOURCES = [
    path
    for path in sorted((REPOSITORY / "kmod").rglob("*.[ch]"))
    if "test" not in path.relative_to(REPOSITORY / "kmod").parts
]
BARRIER = re.compile(r"\b(?:smp_\w*(?:mb|release|acquire)\w*|smp_store_mb)\(")
NAMED = re.compile(
    r"Litmus: (?:tests/litmus/)?(\S+?)(?:\.litmus)?(?: \*/)?(?:\s*\\)?$", re.MULTILINE
)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


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


def twins(test: str) -> list[str]:
    return [
        name
        for name, path in LITMUS.items()
        if name.endswith("-broken") and f" * As {test}," in path.read_text(encoding="utf-8")
    ]


def test_every_barrier_names_its_litmus_test() -> None:
    barriers = [
        (f"{path.name}:{line}", names)
        for path in SOURCES
        for line, names in named_near_barriers(path.read_text(encoding="utf-8"))
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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_what_is_named_exists(path: Path) -> None:
    assert set(NAMED.findall(path.read_text(encoding="utf-8"))) <= LITMUS.keys()


@pytest.mark.parametrize("test", [name for name in LITMUS if not name.endswith("-broken")])
def test_each_proof_is_named_by_code_and_by_the_manual_and_can_fail(test: str) -> None:
    assert any(test in NAMED.findall(path.read_text(encoding="utf-8")) for path in SOURCES)
    manual = (REPOSITORY / "docs/memory-ordering.md").read_text(encoding="utf-8")
    assert f"`{test}`" in manual
    assert twins(test)
    assert test in LITMUS[test].read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.parametrize("test", [name for name in LITMUS if name.endswith("-broken")])
def test_each_twin_has_its_whole(test: str) -> None:
    assert any(test in twins(whole) for whole in LITMUS)
