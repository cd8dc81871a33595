# SPDX-License-Identifier: GPL-2.0-only
"""``python -m nodrop.lab ARGUMENTS``: ``nodrop lab run --driver none ARGUMENTS``, for tests."""

from __future__ import annotations

import sys

from nodrop.cli import main
from nodrop.signals import interrupt_on_signals

if __name__ == "__main__":
    interrupt_on_signals()
    sys.exit(main(["lab", "run", "--driver", "none", *sys.argv[1:]]))
