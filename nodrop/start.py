# SPDX-License-Identifier: GPL-2.0-only
"""Entry point of the ``nodrop`` command, and its streams; imports nothing that takes long to load.

If stdout cannot be written, the command ends. If stderr cannot be written, its text is discarded
and the command continues. Characters that cannot be encoded become ``?``.
"""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from nodrop.errors import INTERRUPTED, NodropError, interrupt_on_signals

SCHEMA = 3
"""Version of the JSON output; docs/guide.md describes when it changes."""
_UNKNOWN = 3
"""Exit status of a monitoring plugin that could not run its checks."""
CLOSED = 141
"""Exit status if stdout's pipe was closed, as shells report SIGPIPE."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_DEBUG = "NODROP_DEBUG"
_COMPLETE = "__complete"
"""The first word when a shell requests completion."""


class WriteError(Exception):
    """stdout cannot be written any more; the cause is the OSError of the write."""


class _OutputStream(io.FileIO):
    """A file descriptor that discards everything after the first failed write.

    Attributes:
        fatal: the failed write raises WriteError.
    """

    failed = False
    fatal = False

    def write(self, data: Any, /) -> int:
        if self.failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self.failed = True
            if self.fatal:
                raise WriteError from error
            return len(data)


def _wrapped(raw: _OutputStream, encoding: str, *, by_line: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "replace", line_buffering=by_line or raw.isatty()
    )


def discard_output() -> None:
    """Discard stdout's buffer.

    After an interrupt during a write, it is unknown how much of the buffer was written.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _OutputStream):
        raw.failed = True


def prepare_streams() -> None:
    """Replace sys.stdout and sys.stderr; call once, at the start.

    Also open closed descriptors, which the next open() would otherwise reuse.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # Open it for the opposite direction, so that using it fails.
            os.open(os.devnull, mode)
    encoding = getattr(sys.stdout or sys.stderr, "encoding", None) or "utf-8"
    if sys.stdout is sys.__stdout__:
        data = _OutputStream(1, "wb", closefd=False)
        data.fatal = True
        sys.stdout = _wrapped(data, encoding, by_line=False)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrapped(_OutputStream(2, "wb", closefd=False), encoding, by_line=True)


def wants_json(words: Sequence[str]) -> bool:
    """Return whether a command line, which may be wrong, has the option -j."""
    options = takewhile(lambda word: word != "--", words)
    # What follows n is its value.
    return any(word == "--json" or re.match("-[A-Za-mo-z]*j", word) for word in options)


def report(program: str, error: NodropError, words: Sequence[str] | None = None) -> int:
    """Print an error on stderr, as an object if -j was given; return its exit status.

    With --nagios, print a monitoring plugin's line on stdout, and return its status.

    Args:
        words: the command line, which may be wrong; None: this process's.
    """
    words = sys.argv[1:] if words is None else words
    if "--nagios" in takewhile(lambda word: word != "--", words):
        from nodrop.screen import nagios_text

        print(nagios_text(_UNKNOWN, error.message))
        return _UNKNOWN
    if wants_json(words):
        import json

        texts = {"message": error.message, "hint": error.hint or None}
        data = {"schema": SCHEMA, "error": {**texts, "status": error.status}}

        def escaped(match: re.Match[str]) -> str:
            return rf"\\x{match[1]}" if match[1] else match[0]

        # A byte of a name that is not UTF-8 becomes \\xff; a backslash is \\ already.
        text = re.sub(r"\\(?:udc([89a-f][0-9a-f])|\\)", escaped, json.dumps(data))
        print(text, file=sys.stderr)
    else:
        from nodrop.screen import clean_lines

        print(clean_lines(f"{program}: {error}"), file=sys.stderr)
    return error.status


def main(cli: str = "nodrop.cli") -> int:
    """Run a command line and return its exit status; errors print no traceback.

    Args:
        cli: name of the module with the command line's ``main``.
    """
    # Ten thousand devices are a million objects, none of them garbage: collect rarely.
    gc.set_threshold(100_000)
    interrupt_on_signals()
    prepare_streams()
    try:
        try:
            return _run(cli)
        except KeyboardInterrupt:
            discard_output()
            raise
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except WriteError as error:
        cause = error.__cause__
        assert isinstance(cause, OSError)
        if cause.errno == errno.EPIPE:
            return CLOSED
        return _failed(f"Cannot write to standard output: {cause.strerror}.")
    except KeyboardInterrupt:
        return _failed("interrupted", status=INTERRUPTED)
    except Exception as error:
        return _unexpected(error)
    finally:
        # From here on, there is nothing to clean up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(cli: str) -> int:
    try:
        if sys.argv[1:2] == [_COMPLETE] and cli == "nodrop.cli":
            status: int = importlib.import_module("nodrop.complete").main(sys.argv[2:])
        else:
            status = importlib.import_module(cli).main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return status


def _failed(sentence: str, hint: str = "", status: int = 1) -> int:
    return report("nodrop", NodropError(sentence, hint, status))


def _unexpected(error: Exception) -> int:
    """Report a bug in nodrop, or exhausted resources."""
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return _failed(f"{os.strerror(error.errno)}.", "End other programs, or see 'ulimit -a'.")
    if os.environ.get(_DEBUG):
        import traceback

        traceback.print_exc()
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _failed(
        f"This is a bug in nodrop; please report it: {what}",
        f"Run the command again with {_DEBUG}=1, and add its output to the report.",
    )
