# SPDX-License-Identifier: GPL-2.0-only
"""Runs a part of a test in a network namespace of its own, which goes with it."""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from collections.abc import Callable

import pytest

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def in_namespace(function: Callable[[], None]) -> None:
    """Run a function in a child process with a network of its own."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if LIBC.unshare(CLONE_NEWNET):
                status = 4
            else:
                function()
                status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, waited = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(waited) == 4:
        pytest.skip("only root has a network of its own")
    assert waited == 0
