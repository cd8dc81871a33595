# SPDX-License-Identifier: GPL-2.0-only
"""Writes down each failure at once, in a file that nothing takes a line from."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from nodrop.bench import machine
from nodrop.guest.plan import Job
from nodrop.lab.splats import Splat, Watch
from nodrop.report.failures import FAILURES_NAME, Failure, Kind


def begin(out: Path) -> None:
    """Leave a record without a failure: one that is not there tells nothing.

    Raises:
        OSError: it cannot be written.
    """
    (out / FAILURES_NAME).touch()


def append(out: Path, failure: Failure) -> None:
    """Append one line, on the disk when this returns.

    Raises:
        OSError: it cannot be written.
    """
    with (out / FAILURES_NAME).open("a+b") as file:
        # A line that a crash cut short ends here.
        torn = file.seek(0, os.SEEK_END) and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
        file.write(b"\n" * bool(torn) + json.dumps(asdict(failure)).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


class Recorder:
    """Knows which run is being made in a guest, and what goes wrong meanwhile.

    Args:
        out: the directory of the results.
        runs: the plan.

    Attributes:
        done: how many runs have a result; None until the guest says so.
        unwritten: why a failure could not be written down, in a sentence.
    """

    def __init__(self, out: Path, runs: Sequence[Job]) -> None:
        self._out = out
        self._runs = runs
        self._watch = Watch()
        self.done: int | None = None
        self.unwritten = ""

    def heard(self, line: str) -> None:
        """Look at a line of the guest's kernel log."""
        for splat in self._watch.feed(line):
            self._add(Kind.SPLAT, splat.line, splat.text)

    def complained(self, splats: Sequence[Splat]) -> None:
        """Add what the whole log has and its lines so far did not tell."""
        for splat in splats[self._watch.count :]:
            self._add(Kind.SPLAT, splat.line, splat.text)

    def failed(self, text: str, log: str = "") -> None:
        """The guest gave up, or was given up."""
        if self.done is None:
            kind = Kind.BOOT
        else:
            kind = Kind.RUN if self.done < len(self._runs) else Kind.END
        self._add(kind, text, log)

    def _add(self, kind: Kind, text: str, log: str) -> None:
        failure = Failure(kind, text, at=machine.now_utc(), log=log)
        if self.done is not None and self.done < len(self._runs):
            job = self._runs[self.done]
            failure = replace(
                failure,
                scenario=job.scenario,
                case=job.case,
                variant=str(job.variant),
                pair=job.pair,
            )
        try:
            append(self._out, failure)
        except OSError as error:
            self.unwritten = f"{FAILURES_NAME} could not take this: {error.strerror}."
