# SPDX-License-Identifier: GPL-2.0-only
"""What the fuzzer has found: kept in folders, told apart, and made short."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodrop.guest.fuzz.program import Program
from nodrop.guest.fuzz.text import FormError, parse, render
from nodrop.lab.fuzz_guest import GRACE_S, Found, Guests
from nodrop.lab.shorten import shorten

TIMES = 10
"""How often a program runs to see whether it does it again."""
ROUNDS = 30
_PROGRAM_S = 0.7
"""What a program takes, about, with all that a slow kernel does."""
_VARIES = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+")


@dataclass
class Kept:
    """A finding that is kept.

    Attributes:
        times: how often it was met.
        again: whether its last program alone does it again.
    """

    found: Found
    folder: Path
    times: int = 1
    again: bool = False


class Findings:
    """Those of a run.

    Args:
        out: they are in ``out/findings``.
        guests: run programs again.
    """

    def __init__(self, out: Path, guests: Guests) -> None:
        self._out = out
        self._guests = guests
        self._kept: dict[str, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, guest: int, found: Found) -> None:
        """Keep what a guest has found; what is known is only counted."""
        known = self._kept.get(title(found))
        if known:
            known.times += 1
            return
        name = re.sub(r"\W+", "-", found.kind.lower())
        folder = self._out / "findings" / f"{guest}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        kept = self._kept[title(found)] = Kept(found, folder)
        for file, text in (
            ("report.txt", f"{found.kind}: {found.line}\n\n{found.text}\n"),
            ("program.txt", found.program),
            ("recent.txt", found.recent),
        ):
            (folder / file).write_text(text, encoding="utf-8")
        print(f"FOUND {found.kind}: {found.line}; see {folder}", flush=True)
        try:
            program = parse(found.program)
        except FormError:
            return
        kept.again = self._first_failing([program]) is not None
        if kept.again:
            short = shorten(program, self._first_failing, ROUNDS)
            # What shows only at a guest's end may have been blamed on another program.
            if self._first_failing([short]) is not None:
                (folder / "short.txt").write_text(render(short), encoding="utf-8")

    def _first_failing(self, programs: Sequence[Program]) -> int | None:
        """Run programs in a guest, one after another; return which was the first that fails."""
        work = self._out / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        files = []
        for number, program in enumerate(programs):
            files.append(work / f"{number}.txt")
            files[-1].write_text(render(program), encoding="utf-8")
        seconds = len(files) * TIMES * _PROGRAM_S
        arguments = ["--seconds", f"{seconds:.0f}", "--times", str(TIMES), "--replay"]
        arguments += [str(path.resolve()) for path in files]
        outcome = self._guests.run(arguments, work, timeout=seconds + GRACE_S)
        shutil.rmtree(work, ignore_errors=True)
        if not outcome.finding:
            return None
        return min(max(outcome.finding.of, 0), len(programs) - 1)

    def to_json(self) -> list[dict[str, Any]]:
        """Return all of them, as JSON has it."""
        return [
            {
                "kind": kept.found.kind,
                "line": kept.found.line,
                "times": kept.times,
                "again": kept.again,
                "folder": str(kept.folder),
            }
            for kept in self._kept.values()
        ]


def title(found: Found) -> str:
    """Return what is the same for all meetings of a finding."""
    return f"{found.kind}: {_VARIES.sub('N', found.line)}"
