# SPDX-License-Identifier: GPL-2.0-only
"""Runs the fuzzer in a guest, and finds out what came of it however the guest ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodrop.errors import NodropError
from nodrop.guest.fuzz import watch
from nodrop.guest.fuzz.state import State, numbered, recent_text, state_path
from nodrop.kernel import Artifacts, Kernel
from nodrop.kernel.artifacts import REPOSITORY
from nodrop.lab.hearing import DiedAtBoot, GuestDied, GuestRun, GuestTimeout, results_folder
from nodrop.lab.uml import run
from nodrop.proc import tail

GRACE_S = 150.0
"""What a guest may take beyond its time: boot, the last programs, leaks, modules that go."""
CANNOT_RUN = 2


@dataclass(frozen=True)
class Found:
    """What was found, and by what.

    Attributes:
        program: that ran last; "": none did.
        recent: those that ran before it, and it.
    """

    kind: str
    line: str
    text: str
    program: str = ""
    recent: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a guest; no state: it died before it had one."""

    state: State | None
    finding: Found | None


class Guests:
    """Runs guests of a kernel.

    Args:
        artifacts: whose modules tell what they execute.
    """

    def __init__(self, kernel: Kernel, artifacts: Artifacts) -> None:
        self.kernel = kernel
        self.artifacts = artifacts

    def run(
        self,
        arguments: Sequence[str],
        out: Path,
        *,
        timeout: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        """Run ``python -m nodrop.guest.fuzz`` in a guest.

        Args:
            arguments: of it.
            timeout: seconds, GRACE_S more than what it is to run.
            on_line: called with each line of its output.

        Raises:
            NodropError: it cannot be run.
        """
        out = results_folder(out)
        number = int(arguments[arguments.index("--guest") + 1]) if "--guest" in arguments else 0
        state_path(out, number).unlink(missing_ok=True)
        argv = [sys.executable, "-m", "nodrop.guest.fuzz", *arguments]
        found: watch.Finding | None = None
        ended: GuestRun | None = None
        try:
            ended = run(
                self.kernel,
                argv,
                out=out,
                artifacts=self.artifacts,
                timeout=timeout,
                env={"PYTHONPATH": str(REPOSITORY)},
                on_line=on_line,
            )
        except DiedAtBoot:
            raise
        except (GuestDied, GuestTimeout) as error:
            kind = "died" if isinstance(error, GuestDied) else "hangs"
            found = watch.Finding(kind, _telling_line(error), str(error))
        state = _state(out, number)
        if ended and ended.status == CANNOT_RUN:
            raise NodropError("The fuzzer cannot run.", tail(ended.output))
        if state and state.finding:
            found = state.finding
        elif ended and ended.splats:
            found = watch.Finding(ended.splats[0].kind, ended.splats[0].line, ended.log)
        elif ended and ended.status and not found:
            found = watch.Finding("ended", f"exit status {ended.status}", tail(ended.output))
        return Outcome(state, _found(found, out) if found else None)


def _telling_line(error: NodropError) -> str:
    """Return the kernel's first complaint, or what the lab says."""
    for line in error.hint.splitlines():
        if line.startswith("The kernel complained: "):
            return line.removeprefix("The kernel complained: ")
    return error.message


def _state(out: Path, number: int) -> State | None:
    try:
        text = state_path(out, number).read_text(encoding="utf-8")
        return State.from_json(json.loads(text))
    except (OSError, ValueError, TypeError):
        return None


def _found(found: watch.Finding, out: Path) -> Found:
    recent = recent_text(out)
    programs = numbered(recent)
    return Found(found.kind, found.line, found.text, programs[-1] if programs else "", recent)
