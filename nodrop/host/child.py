# SPDX-License-Identifier: GPL-2.0-only
"""Call a function in a forked child process."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from nodrop import deadline
from nodrop.errors import NodropError

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Child:
    """A child process that calls a function; a context manager, which ends it.

    Args:
        function: its result must survive JSON.
        seconds: timeout; None: none.

    Raises:
        OSError: no process can be created.
    """

    def __init__(self, function: Callable[[], Any], seconds: float | None = None) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        reader, writer = os.pipe()
        # A signal in between would leave the pipe open, or run the caller's code in the child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTING)
        try:
            self._pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        if self._pid == 0:
            os.close(reader)
            _run(function, seconds, writer)
        os.close(writer)
        self._pipe = os.fdopen(reader, encoding="utf-8")
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def result(self, unfinished: str) -> Any:
        """Wait for the function, and return its result or raise its error.

        Args:
            unfinished: message for a child that ended before the function did.

        Raises:
            NodropError: raised by the function, or it did not finish.
            OSError: raised by the function, with its errno and file name.
            RuntimeError: any other error of the function, with its traceback as a note.
        """
        try:
            answer = json.loads(self._pipe.read())
        except ValueError as error:
            raise NodropError(unfinished) from error
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["file"])
        if "error" in answer:
            raise NodropError(*answer["error"])
        if "bug" in answer:
            bug = RuntimeError(answer["bug"])
            bug.add_note(answer["trace"])
            raise bug
        return answer["result"]


def _run(function: Callable[[], Any], seconds: float | None, writer: int) -> None:
    """Write the function's result or error to the pipe, and exit."""
    status = 1
    try:
        for number in _INTERRUPTING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTING)
        if seconds is not None:
            # Programs that it runs end first.
            left = deadline.at_most(seconds) or 0.0
            os.environ[deadline.VARIABLE] = str(time.monotonic() + left)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds + 1)
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(_answer(function)))
        status = 0
    finally:
        os._exit(status)


def _answer(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": function()}
    except NodropError as error:
        return {"error": [error.message, error.hint, error.status]}
    except OSError as error:
        return {"errno": error.errno or errno.EIO, "file": error.filename}
    except Exception as error:
        return {"bug": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
