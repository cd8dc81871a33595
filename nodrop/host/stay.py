# SPDX-License-Identifier: GPL-2.0-only
"""A child process that stays in another network namespace and reads it when asked.

To enter a namespace takes a process with a /sys of its own; here it is made once. While it
lives its namespace lives, too: :meth:`Inside.gone` says when nobody else wants it any more.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

from nodrop.errors import NodropError
from nodrop.host import netns
from nodrop.host.again import Again
from nodrop.host.raw import RawNamespace

_WHOLE, _REST = b"w", b"r"


class Inside:
    """That process; close it.

    Args:
        where: the namespace: name, pid or file.
        name: what people call it.
    """

    def __init__(self, where: str, name: str) -> None:
        self.name = name
        self._where = where
        self._path = netns.path_of(where)
        self._inode = self._find()
        theirs, self._ask = os.pipe()
        answers, their_answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            os.close(answers)
            _serve(where, name, theirs, their_answers)
        os.close(theirs)
        os.close(their_answers)
        self._answers: BinaryIO = os.fdopen(answers, "rb")

    @property
    def gone(self) -> bool:
        """Whether its name, or the process that it was known by, is gone."""
        return self._find() != self._inode

    def _find(self) -> int:
        with suppress(OSError):
            return os.stat(self._path).st_ino
        return 0

    def ask(self, *, whole: bool) -> None:
        """Have it read; :meth:`answer` waits for the end of that."""
        with suppress(BrokenPipeError):
            os.write(self._ask, _WHOLE if whole else _REST)

    def answer(self) -> RawNamespace:
        """Return what was read.

        Raises:
            NodropError: the namespace cannot be entered or read, or the process has ended.
        """
        try:
            told = json.loads(self._answers.readline())
        except ValueError as error:
            raise NodropError(
                f"The look into the network namespace {self._where} ended early."
            ) from error
        if "error" in told:
            raise NodropError(*told["error"])
        return RawNamespace(**told["result"])

    def close(self) -> None:
        """End it, and let the namespace go."""
        os.close(self._ask)
        self._answers.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve(where: str, name: str, requests: int, answers: int) -> NoReturn:
    """Answer until nobody asks any more; the terminal's signals are for the command."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        space: Again | None = None
        with os.fdopen(answers, "w", encoding="utf-8") as pipe:
            while request := os.read(requests, 1):
                told: dict[str, Any]
                try:
                    if space is None:
                        netns.enter(where)
                        space = Again(name)
                    told = {"result": space.read(whole=request == _WHOLE).__dict__}
                except NodropError as error:
                    told = {"error": [error.message, error.hint, error.status]}
                # Not json.dump(): that one is many times slower.
                pipe.write(json.dumps(told) + "\n")
                pipe.flush()
    finally:
        os._exit(0)
