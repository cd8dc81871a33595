# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs by traffic/fuzz_exec.c."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from nodrop.guest.failure import GuestError
from nodrop.guest.fuzz import wire
from nodrop.guest.fuzz.calls import encode
from nodrop.guest.fuzz.program import Program
from nodrop.guest.fuzz.wire import Answer
from nodrop.guest.slow import LEAST_S

_END_S = LEAST_S


class Executor:
    """Makes the calls of programs, one program after another; a context manager.

    Args:
        folder: where the program is.
    """

    def __init__(self, folder: Path) -> None:
        self._argv = [str(folder / "fuzz_exec")]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            # Its last program cannot be killed; that was told already.
            return

    def run(self, program: Program, *, settle: bool | None = None) -> Answer:
        """Run a program and return what became of it.

        Args:
            settle: as :func:`nodrop.guest.fuzz.calls.encode` takes it.

        Raises:
            GuestError: the executor ended.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise GuestError("the executor was not started")
        try:
            process.stdin.write(encode(program, settle=settle))
            process.stdin.flush()
            head = process.stdout.read(wire.ANSWER.size)
            calls = wire.ANSWER.unpack(head)[1] if len(head) == wire.ANSWER.size else 0
            results = process.stdout.read(8 * calls)
        except BrokenPipeError:
            head = results = b""
        if len(head) < wire.ANSWER.size or len(results) < 8 * calls:
            process.kill()
            said = process.stderr.read().decode(errors="replace") if process.stderr else ""
            raise GuestError(f"fuzz_exec ended: {said.strip()}")
        return wire.answer(head, results)
