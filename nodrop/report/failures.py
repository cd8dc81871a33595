# SPDX-License-Identifier: GPL-2.0-only
"""What went wrong while the runs of a directory were made; kept, whatever became of it later.

A run that failed is made again until there is a result, so that the raw data cannot tell. A driver
that often fails would look like one that never does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from nodrop.columns import clean

FAILURES_NAME = "failures.jsonl"
TEXT_CHARS = 300
"""What is told of a failure at most."""

Place = tuple[str, str, str, int]
"""Scenario, case, variant and pair of a run."""


class Kind(StrEnum):
    """What failed."""

    BOOT = "boot"
    """The guest, before its first run."""
    RUN = "run"
    SPLAT = "splat"
    """The guest's kernel complained about itself."""
    END = "end"
    """The guest, after the last run: a module that cannot be unloaded, for example."""
    UNREADABLE = "unreadable"
    """The record itself."""


LASTING = (Kind.SPLAT, Kind.END, Kind.UNREADABLE)
"""No run that is made again takes these back."""


@dataclass(frozen=True)
class Failure:
    """One line of the record.

    Attributes:
        text: one line.
        scenario: of the run that was being made; it, case, variant and pair are None for none.
        at: when, ISO 8601.
        log: what the guest said of it.
    """

    kind: Kind
    text: str
    scenario: str | None = None
    case: str | None = None
    variant: str | None = None
    pair: int | None = None
    at: str = ""
    log: str = ""

    @property
    def place(self) -> tuple[str | None, str | None, str | None, int | None]:
        """The run that was being made."""
        return self.scenario, self.case, self.variant, self.pair

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read one.

        Raises:
            ValueError: it is none.
        """
        known = {field.name for field in fields(cls)}
        try:
            given = {name: value for name, value in data.items() if name in known}
            return cls(**{**given, "kind": Kind(given["kind"]), "text": str(given["text"])})
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError("no failure") from error


def read(path: Path) -> tuple[Failure, ...] | None:
    """Return the failures in a run's directory; None: they were not recorded.

    A line that cannot be read stands for a failure, too.

    Raises:
        OSError: the record cannot be read.
    """
    file = path / FAILURES_NAME
    if not file.exists():
        return None
    return tuple(map(_parse, file.read_text(encoding="utf-8", errors="replace").splitlines()))


def _parse(line: str) -> Failure:
    try:
        return Failure.from_data(json.loads(line))
    except ValueError:
        return Failure(Kind.UNREADABLE, line)


def sentences(failures: Sequence[Failure] | None, made: Iterable[Place]) -> list[str]:
    """Return what readers must know of failures; nothing when there was none.

    Args:
        failures: None: not recorded.
        made: the runs that have a result.
    """
    if failures is None:
        return ["Whether runs failed and were made again is not recorded."]
    by_kind = {kind: [one for one in failures if one.kind is kind] for kind in Kind}
    places = set(made)
    told = []
    for group, what in (
        ([one for one in by_kind[Kind.RUN] if one.place in places], "failed and {} made again"),
        ([one for one in by_kind[Kind.RUN] if one.place not in places], "failed and {} missing"),
    ):
        if group:
            verb = "was" if len(group) == 1 else "were"
            verb = verb if "again" in what else {"was": "is", "were": "are"}[verb]
            told.append(f"{_count(group, 'run')} {what.format(verb)} ({_drivers(group)}).")
    if group := by_kind[Kind.BOOT]:
        told.append(f"{_count(group, 'guest')} failed before the first run: {_text(group[0])}")
    return told + lasting(failures)


def lasting(failures: Sequence[Failure] | None) -> list[str]:
    """Return the sentences about what no other run takes back."""
    by_kind = {kind: [one for one in failures or () if one.kind is kind] for kind in LASTING}
    told = []
    if group := by_kind[Kind.SPLAT]:
        times = "once" if len(group) == 1 else f"{len(group)} times"
        told.append(
            f"The guest's kernel complained {times} ({_drivers(group)}), first: {_text(group[0])}"
        )
    if group := by_kind[Kind.END]:
        told.append(f"After the last run the guest failed: {_text(group[0])}")
    if group := by_kind[Kind.UNREADABLE]:
        told.append(f"{_count(group, 'line')} of {FAILURES_NAME} cannot be read.")
    return told


def _count(group: Sequence[Failure], what: str) -> str:
    return f"{len(group)} {what}" if len(group) == 1 else f"{len(group)} {what}s"


def _drivers(group: Sequence[Failure]) -> str:
    """Return how often each driver was there: ``nodrop: 2, stock: 1``."""
    counts = Counter(str(one.variant) if one.variant else "no driver's run" for one in group)
    return clean(", ".join(f"{name}: {number}" for name, number in counts.items()))


def _text(failure: Failure) -> str:
    text = clean(failure.text)
    short = text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}..."
    return short if short.endswith(".") else f"{short}."
