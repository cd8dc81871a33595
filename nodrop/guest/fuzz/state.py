# SPDX-License-Identifier: GPL-2.0-only
"""What a guest leaves of its fuzzing, so that a kernel that dies takes little with it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nodrop.guest.fuzz.cover import Places
from nodrop.guest.fuzz.watch import Finding

MARK = "@fuzz "
"""Lines that begin so are for the host; a JSON object follows."""
_EACH = 32
"""Programs in a file."""
_FILES = ("running-0.txt", "running-1.txt")


@dataclass
class State:
    """A guest's run so far.

    Attributes:
        guest: its number.
        programs: that were run.
        calls: of these, what was made; repeated ones count once.
        killed: programs whose time was over.
        corpus: programs in it.
        unsure: programs whose packets were held once and not again.
        ended: how calls ended (:func:`nodrop.guest.fuzz.corpus.outcomes`).
        places: which code was executed.
        finding: what ended the run; None: nothing.
    """

    guest: int
    seed: int
    programs: int = 0
    calls: int = 0
    seconds: float = 0.0
    killed: int = 0
    corpus: int = 0
    unsure: int = 0
    ended: list[str] = field(default_factory=list)
    places: Places = field(default_factory=dict)
    finding: Finding | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> State:
        """Read it.

        Raises:
            TypeError, ValueError: it is none.
        """
        finding = data.pop("finding", None)
        return cls(**data, finding=Finding(**finding) if finding else None)

    def figures(self) -> dict[str, int | float]:
        """Return what changes all the time, without lists."""
        return {
            "guest": self.guest,
            "programs": self.programs,
            "calls": self.calls,
            "seconds": round(self.seconds, 1),
            "killed": self.killed,
            "corpus": self.corpus,
            "places": sum(len(offsets) for s in self.places.values() for offsets in s.values()),
        }

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        path = state_path(folder, self.guest)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(self.to_json()), encoding="utf-8")
        fresh.replace(path)


def state_path(folder: Path, guest: int) -> Path:
    """Return where a guest's state is."""
    return folder / "guests" / f"{guest}.json"


def read_states(folder: Path) -> list[State]:
    """Return the states of all guests so far that can be read."""
    found = []
    for path in sorted((folder / "guests").glob("*.json")):
        with suppress(OSError, ValueError, TypeError):
            found.append(State.from_json(json.loads(path.read_text(encoding="utf-8"))))
    return found


class Recent:
    """The programs that ran last, in files: each is there before it runs.

    Args:
        folder: its files survive the guest.
    """

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self._fds = [os.open(folder / name, flags, 0o644) for name in _FILES]
        self._at = [0, 0]

    def begins(self, number: int, text: str) -> None:
        """A program is about to run."""
        half = number // _EACH % 2
        if number % _EACH == 0:
            os.ftruncate(self._fds[half], 0)
            self._at[half] = 0
        self._at[half] += os.pwrite(
            self._fds[half], f"# {number}\n{text}\n".encode(), self._at[half]
        )

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds:
            os.close(fd)


def recent_text(folder: Path) -> str:
    """Return the programs that ran last, in their order, each behind its number."""
    texts = []
    for name in _FILES:
        path = folder / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if text.startswith("# "):
            texts.append((int(text[2 : text.index("\n")]), text))
    return "".join(text for _, text in sorted(texts))


def numbered(text: str) -> list[str]:
    """Return the programs' texts of :func:`recent_text`."""
    found = []
    for part in text.split("\n\n"):
        head, _, body = part.strip().partition("\n")
        if head.startswith("# ") and head[2:].isdigit() and body:
            found.append(f"{body}\n")
    return found
