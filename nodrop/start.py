# SPDX-License-Identifier: GPL-2.0-only
"""Entry point of the ``nodrop`` command; it imports nothing that takes long to load."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys

from nodrop import streams
from nodrop.signals import INTERRUPTED, interrupt_on_signals

# Modules outside of Python's standard library -> their Debian packages.
_PACKAGES = {"rich": "python3-rich"}
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_DEBUG = "NODROP_DEBUG"
_COMPLETE = "__complete"
"""The first word when a shell requests completion."""


def main(cli: str = "nodrop.cli") -> int:
    """Run a command line and return its exit status; errors print no traceback.

    Args:
        cli: name of the module with the command line's ``main``.
    """
    # Ten thousand devices are a million objects, none of them garbage: collect rarely.
    gc.set_threshold(100_000)
    interrupt_on_signals()
    streams.prepare()
    try:
        try:
            return _run(cli)
        except KeyboardInterrupt:
            streams.discard()
            raise
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except streams.WriteError as error:
        if error.closed:
            return streams.CLOSED
        return _failed(f"Cannot write to standard output: {error}.")
    except KeyboardInterrupt:
        print("nodrop: interrupted", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name in _PACKAGES:
            package = _PACKAGES[error.name]
            return _failed(f"Python's module {error.name} is missing.\napt install {package}")
        return _unexpected(error)
    except Exception as error:
        return _unexpected(error)
    finally:
        # From here on, there is nothing to clean up.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(cli: str) -> int:
    try:
        if sys.argv[1:2] == [_COMPLETE] and cli == "nodrop.cli":
            found: int = importlib.import_module("nodrop.complete").main(sys.argv[2:])
            return found
        status: int = importlib.import_module(cli).main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return status


def _failed(sentence: str) -> int:
    print(f"nodrop: {sentence}", file=sys.stderr)
    return 1


def _unexpected(error: Exception) -> int:
    """Report a bug in nodrop, or exhausted resources."""
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return _failed(f"{os.strerror(error.errno)}.\nEnd other programs, or see 'ulimit -a'.")
    if os.environ.get(_DEBUG):
        import traceback

        traceback.print_exception(error)
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _failed(
        f"This is a bug in nodrop; please report it: {what}\n"
        f"Run the command again with {_DEBUG}=1, and add its output to the report."
    )
