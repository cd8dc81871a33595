# SPDX-License-Identifier: GPL-2.0-only
"""Where the ``nodrop`` command begins: before anything is loaded that takes time."""

from __future__ import annotations

import importlib
import sys

from nodrop.signals import INTERRUPTED, interrupt_on_signals

# What is not Python's own, and the Debian package that has it.
_PACKAGES = {"rich": "python3-rich", "matplotlib": "python3-matplotlib"}


def main() -> int:
    """Load the command line and run it; Ctrl-C ends it in one sentence from the start."""
    interrupt_on_signals()
    try:
        status: int = importlib.import_module("nodrop.cli").main()
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        package = _PACKAGES[error.name]
        print(f"nodrop: Python has no {error.name}: apt-get install {package}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nodrop: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status
