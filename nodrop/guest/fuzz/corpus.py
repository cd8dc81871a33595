# SPDX-License-Identifier: GPL-2.0-only
"""The programs that have reached something new, each in a file."""

from __future__ import annotations

import errno
import hashlib
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from nodrop.guest.fuzz.program import Program
from nodrop.guest.fuzz.text import FormError, parse, render
from nodrop.guest.fuzz.wire import NOT_MADE, UNENDED

MOST = 4000
"""Programs that are kept; new ones take the place of the oldest."""
_RECENT = 40


def outcomes(program: Program, results: Iterable[int]) -> set[str]:
    """Return how each call ended: its name, and done, an error, or not at all."""
    return {
        f"{call.name}:{_outcome(result)}" for call, result in zip(program, results, strict=True)
    }


def _outcome(result: int) -> str:
    if result in (NOT_MADE, UNENDED):
        return "not made" if result == NOT_MADE else "goes on"
    return "done" if result >= 0 else errno.errorcode.get(-result, str(result))


def keep(folder: Path, program: Program) -> Path:
    """Write a program into a folder, whole or not at all; equal ones are the same file."""
    text = render(program)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    return path


def kept(folder: Path) -> Iterator[Program]:
    """Give the programs in a folder; what the grammar does not know any more is left out."""
    for path in sorted(folder.glob("*.txt")):
        with suppress(FormError):
            yield parse(path.read_text(encoding="utf-8"))


class Corpus:
    """Programs to make others of.

    Attributes:
        programs: the newest last.
        passed: addresses that were passed.
        ended: how calls ended, see :func:`outcomes`.
    """

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.passed: set[int] = set()
        self.ended: set[str] = set()

    def consider(self, program: Program, passed: set[int], ended: set[str]) -> bool:
        """Take a program in if it reached what none has reached. Return whether it did."""
        fresh = not passed <= self.passed or not ended <= self.ended
        self.passed |= passed
        self.ended |= ended
        if fresh:
            self.programs.append(program)
            del self.programs[:-MOST]
        return fresh

    def choose(self, rng: random.Random) -> Program:
        """Return a program, every third time a recent one; the corpus has some."""
        if rng.random() < 0.33:
            return rng.choice(self.programs[-_RECENT:])
        return rng.choice(self.programs)
